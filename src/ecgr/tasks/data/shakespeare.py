"""Tiny Shakespeare: 1.1 MB of plays, as they come with Karpathy's char-rnn; each speaker a client."""

from pathlib import Path
from typing import Literal

from ecgr.component import Count, component
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.image_folder import Share
from ecgr.tasks.data.known import KnownSet, compared
from ecgr.tasks.data.locate import find_folder, member
from ecgr.tasks.data.official import OFFICIAL, Report
from ecgr.tasks.data.text_files import Text, Vocabulary, WindowLength

OFFICIAL_SET = OFFICIAL["shakespeare"]


@component
class Shakespeare(KnownSet):
    """Tiny Shakespeare, 1.1 MB of plays: the next character or word; one speaker a client."""

    root: str | None = None
    unit: Literal["character", "word"] = "character"
    length: WindowLength = 80
    stride: Count = 10
    vocabulary: Vocabulary = 2000
    minimum: Count = 5000
    test_share: Share = 0.2

    def folder(self) -> Path:
        """The folder that has ``input.txt``."""
        return find_folder("shakespeare", (OFFICIAL_SET.folder,), self.root)

    def read(self) -> tuple[Dataset, Report]:
        """Read the plays and cut them up by speaker."""
        text = Text(
            root=str(member("shakespeare", self.folder(), *OFFICIAL_SET.content)),
            unit=self.unit,
            length=self.length,
            stride=self.stride,
            vocabulary=self.vocabulary,
            minimum=self.minimum,
            test_share=self.test_share,
        )
        return compared("shakespeare", text.load())
