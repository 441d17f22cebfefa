"""Texts with speakers: each speaker a client, the next character or word to be predicted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ecgr.component import Count, component
from ecgr.errors import DataError
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.image_folder import Share
from ecgr.tasks.data.locate import own_path
from ecgr.tasks.data.official import Report
from ecgr.tasks.data.speakers import UNKNOWN, Tokens, encode, most_frequent, speeches, windows, words
from ecgr.tasks.data.tables import decode, read_bytes
from ecgr.tasks.data.targets import DEFAULTS
from ecgr.tasks.samples import Samples

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
        """The file."""
        return own_path("text", self.root, "a text file in which a line NAME: says who speaks next", "a file")

    def file(self) -> Path:
        """The same."""
        return self.folder()

    def load(self) -> Dataset:
        """Read the file, cut it up by speaker, and each speaker's text into windows."""
        path = self.file()
        content = read_bytes(path)
        said = {name: UNITS[self.unit](speech) for name, speech in speeches(decode(path, content)).items()}
        if not said:
            raise DataError(f"{path}: nobody speaks; a paragraph must begin with a line NAME: that says who does")
        kept = {name: tokens for name, tokens in said.items() if self._says_enough(len(tokens))}
        if not kept:
            longest = max(said, key=lambda name: len(said[name]))
            raise DataError(
                f"{path}: {longest!r} says most, {len(said[longest]):,} {self.unit}s, and that is too little; lower"
                " data.minimum or data.length"
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
            files={path.name: sha256(content).hexdigest()},
            notes=(f"{len(kept):,} of {len(said):,} speakers say at least {self.minimum:,} {self.unit}s",),
        )

    def assess(self) -> Report:
        """Read and cut up the whole text."""
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
