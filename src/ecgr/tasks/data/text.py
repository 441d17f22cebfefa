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
from ecgr.tasks.data.dataset import Dataset, Share
from ecgr.tasks.data.files import find_folder, member, own_path, read_text
from ecgr.tasks.data.official import OFFICIAL, KnownSet, Report, with_report
from ecgr.tasks.data.targets import DEFAULTS
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

    def file(self) -> Path:
        """The same."""
        return self.folder()

    def load(self) -> Dataset:
        path = self.file()
        text, sha256 = read_text(path)
        said = {name: UNITS[self.unit](speech) for name, speech in speeches(text).items()}
        if not said:
            raise DataError(f"{path}: no speaker found; a paragraph must begin with a line NAME: that says who speaks")
        kept = {name: tokens for name, tokens in said.items() if self._says_enough(len(tokens))}
        if not kept:
            longest = max(said, key=lambda name: len(said[name]))
            raise DataError(
                f"{path}: the longest speaker, {longest!r}, says {len(said[longest]):,} {self.unit}s, which is too few;"
                " lower data.minimum or data.length"
            )
        halves = {name: self._halves(tokens) for name, tokens in kept.items()}
        known = self._vocabulary(said.values(), [train for train, _ in halves.values()])
        numbers = {token: number for number, token in enumerate(known)}
        encoded = {name: [encode(half, numbers) for half in pair] for name, pair in halves.items()}
        loss, metrics = DEFAULTS["tokens"]
        return Dataset(
            train=self._samples({name: train for name, (train, _) in encoded.items()}),
            test=self._samples({name: test for name, (_, test) in encoded.items()}),
            shape={"vocabulary": len(known), "classes": len(known), "length": self.length},
            loss=loss,
            metrics=metrics,
            classes=known,
            files={path.name: sha256},
            notes=(f"{len(kept):,} of {len(said):,} speakers say at least {self.minimum:,} {self.unit}s",),
        )

    def assess(self) -> Report:
        dataset = self.load()
        return Report("text", "whole", ("whole: every line could be read", *dataset.notes), dataset.counts)

    def _vocabulary(self, texts: Iterable[Sequence[str]], train: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """Every token of the text; of too many, the most frequent ones of the training half and one for all others."""
        every = {token for text in texts for token in text}
        if len(every) <= self.vocabulary:
            return tuple(sorted(every))
        return (*most_frequent(train, self.vocabulary - 1), UNKNOWN)

    def _halves(self, tokens: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        end = len(tokens) - int(len(tokens) * self.test_share)
        return tokens[:end], tokens[end:]

    def _says_enough(self, tokens: int) -> bool:
        of_test = int(tokens * self.test_share)
        return tokens >= self.minimum and min(of_test, tokens - of_test) > self.length

    def _samples(self, tokens: Mapping[str, Tokens]) -> Samples:
        cut = {name: windows(tokens[name], self.length, self.stride) for name in sorted(tokens)}
        inputs, targets = zip(*cut.values(), strict=True)
        return Samples(
            np.concatenate(inputs), np.concatenate(targets), np.repeat(list(cut), [len(each) for each in targets])
        )


OFFICIAL_SET = OFFICIAL["shakespeare"]


@component
class Shakespeare(KnownSet, Text):
    """Tiny Shakespeare (Karpathy's char-rnn), 1.1 MB of plays: the next character or word; one speaker a client."""

    minimum: Count = 5000

    def folder(self) -> Path:
        return find_folder("shakespeare", (OFFICIAL_SET.folder,), self.root)

    def file(self) -> Path:
        """``input.txt``."""
        return member("shakespeare", self.folder(), *OFFICIAL_SET.content)

    def read(self) -> tuple[Dataset, Report]:
        return with_report("shakespeare", Text.load(self))
