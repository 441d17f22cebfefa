"""Who says what in a text, and the windows of it that a model predicts the next token from.

A paragraph that begins with a line ``NAME:`` is spoken by NAME; one without such a line goes on with the same speaker.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]

NAME = re.compile(r"([^\s:][^:\n]{0,79}):[ \t]*\n")
WORD = re.compile(r"\w+(?:['\u2019]\w+)*|[^\w\s]|\n")
UNKNOWN = "<unknown>"


def speeches(text: str) -> dict[str, str]:
    """All that each speaker says, in the order of the text; what comes before the first name is nobody's.

    >>> speeches("A:\\nHello.\\n\\nB:\\nThus:\\nyes.\\n\\nA:\\nBye.\\n")
    {'A': 'Hello.\\nBye.\\n', 'B': 'Thus:\\nyes.\\n'}
    """
    said: dict[str, list[str]] = {}
    speaker = None
    for paragraph in re.split(r"\n[ \t]*\n\s*", text.replace("\r\n", "\n").strip() + "\n"):
        found = NAME.match(paragraph + "\n")
        if found:
            speaker = found[1].strip()
        if speaker is not None:
            said.setdefault(speaker, []).append((paragraph + "\n")[found.end() if found else 0 :].rstrip("\n") + "\n")
    return {name: "".join(parts) for name, parts in said.items()}


def words(text: str) -> list[str]:
    """Words in lower case, and each mark and end of line by itself.

    >>> words("Is't so?\\nAy!")
    ["is't", 'so', '?', '\\n', 'ay', '!']
    """
    return WORD.findall(text.lower())


def most_frequent(texts: Iterable[Sequence[str]], most: int) -> tuple[str, ...]:
    """The ``most`` tokens that occur most often, in their own order.

    >>> most_frequent(["abba", "cab"], 2)
    ('a', 'b')
    """
    counts = Counter(token for text in texts for token in text)
    return tuple(sorted(sorted(counts, key=lambda token: (-counts[token], token))[:most]))


def encode(tokens: Sequence[str], numbers: Mapping[str, int]) -> Tokens:
    """Tokens by number; one that has none gets that of `UNKNOWN`."""
    other = numbers.get(UNKNOWN, 0)
    return np.array([numbers.get(token, other) for token in tokens], dtype=np.int32)


def windows(tokens: Tokens, length: int, stride: int) -> tuple[Tokens, NDArray[np.int64]]:
    """Every ``stride``-th window of ``length`` tokens, and the token after each.

    >>> inputs, following = windows(np.arange(6, dtype=np.int32), 3, 2)
    >>> inputs.tolist(), following.tolist()
    ([[0, 1, 2], [2, 3, 4]], [3, 5])
    """
    if len(tokens) <= length:
        return np.empty((0, length), dtype=np.int32), np.empty(0, dtype=np.int64)
    seen = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::stride]
    return np.ascontiguousarray(seen[:, :-1]), seen[:, -1].astype(np.int64)
