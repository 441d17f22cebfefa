"""Texts with speakers: each speaker a client, the next character or word to be predicted.

A paragraph that begins with a line ``NAME:`` is spoken by NAME; one without such a line goes on with the same speaker.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.component import Count, component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset, Share, Targets
from ecgr.tasks.data.sets import KnownFiles, compared, known_folder, own_path, read_text
from ecgr.tasks.samples import Samples

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


WindowLength = Annotated[int, Field(ge=1, le=4096)]
Vocabulary = Annotated[int, Field(ge=2, le=100_000)]

UNITS: Mapping[str, Callable[[str], Sequence[str]]] = {"character": str, "word": words}


@component
class Text:
    """Your own text with speakers (a line NAME: says who speaks next): the next character or word.

    A speaker is a client. The last ``test_share`` of what a speaker says is for testing; one who says fewer than
    ``minimum`` tokens, or too little for a window in both halves, is left out.
    """

    root: str | None = None
    unit: Literal["character", "word"] = "character"
    length: WindowLength = 80
    stride: Count = 10
    vocabulary: Vocabulary = 2000
    minimum: Count = 1000
    test_share: Share = 0.2

    def folder(self) -> Path:
        return own_path("text", self.root, "a text file in which a line NAME: says who speaks next", "a file")

    def load(self) -> Dataset:
        return self._read(self.folder())

    def _read(self, path: Path) -> Dataset:
        text, sha256 = read_text(path)
        said = {name: UNITS[self.unit](speech) for name, speech in speeches(text).items()}
        if not said:
            raise DataError(f"{path}: no speaker found; a paragraph must begin with a line NAME: that says who speaks")
        halves = {name: self._halves(tokens) for name, tokens in said.items()}
        long = {name for name, parts in halves.items() if min(map(len, parts)) > self.length}
        kept = sorted(name for name in long if len(said[name]) >= self.minimum)
        if not kept:
            longest = max(said, key=lambda name: len(said[name]))
            most = f"{len(said[longest]):,} {self.unit}s"
            raise DataError(f"{path}: {longest!r} says most, {most}: too few; lower data.minimum or data.length")
        train, test = ({name: halves[name][side] for name in kept} for side in (0, 1))
        known = tuple(sorted({token for tokens in said.values() for token in tokens}))
        if len(known) > self.vocabulary:
            known = (*most_frequent(train.values(), self.vocabulary - 1), UNKNOWN)
        samples = self._samples(train, known), self._samples(test, known)
        targets = Targets("tokens", samples[0].targets, {"classes": len(known)}, known)
        notes = (f"{len(kept):,} of {len(said):,} speakers say at least {self.minimum:,} {self.unit}s",)
        shape = {"vocabulary": len(known), "length": self.length}
        return targets.dataset(*samples, shape, files={path.name: sha256}, notes=notes)

    def _halves(self, tokens: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        end = len(tokens) - int(len(tokens) * self.test_share)
        return tokens[:end], tokens[end:]

    def _samples(self, said: Mapping[str, Sequence[str]], known: Sequence[str]) -> Samples:
        numbers = {token: number for number, token in enumerate(known)}
        other = numbers.get(UNKNOWN, 0)
        coded = [np.array([numbers.get(token, other) for token in tokens], dtype=np.int32) for tokens in said.values()]
        cut = [windows(tokens, self.length, self.stride) for tokens in coded]
        inputs, targets = zip(*cut, strict=True)
        speakers = np.repeat(list(said), [len(each) for each in targets])
        return Samples(np.concatenate(inputs), np.concatenate(targets), speakers)


@component
class Shakespeare(Text):
    """Tiny Shakespeare (Karpathy's char-rnn), 1.1 MB of plays: the next character or word; one speaker a client."""

    minimum: Count = 5000

    def folder(self) -> Path:
        return known_folder("shakespeare", self.root)

    def load(self) -> Dataset:
        path, _ = KnownFiles("shakespeare", self.root).read("input.txt")
        return compared("shakespeare", self._read(path))
