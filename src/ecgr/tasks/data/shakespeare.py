"""Tiny Shakespeare: 1.1 MB of plays, as they come with Karpathy's char-rnn; each speaker a client."""

from pathlib import Path

from ecgr.component import Count, component
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.known import KnownSet, with_report
from ecgr.tasks.data.locate import find_folder, member
from ecgr.tasks.data.official import OFFICIAL, Report
from ecgr.tasks.data.text_files import Text

OFFICIAL_SET = OFFICIAL["shakespeare"]


@component
class Shakespeare(KnownSet, Text):
    """Tiny Shakespeare, 1.1 MB of plays: the next character or word; one speaker a client."""

    minimum: Count = 5000

    def folder(self) -> Path:
        """The folder that has ``input.txt``."""
        return find_folder("shakespeare", (OFFICIAL_SET.folder,), self.root)

    def file(self) -> Path:
        """``input.txt``."""
        return member("shakespeare", self.folder(), *OFFICIAL_SET.content)

    def read(self) -> tuple[Dataset, Report]:
        """Read the plays and cut them up by speaker."""
        return with_report("shakespeare", Text.load(self))
