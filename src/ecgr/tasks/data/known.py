"""Sets that their authors give out: read once, they are the data and how these compare with the known files."""

from dataclasses import replace

from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.official import OFFICIAL, Report, assess_files


class KnownSet:
    """What a reader of such a set has beside its own ``read``."""

    __slots__ = ()

    def read(self) -> tuple[Dataset, Report]:
        """Read and check all of it."""
        raise NotImplementedError

    def load(self) -> Dataset:
        """Read and check the data set."""
        return self.read()[0]

    def assess(self) -> Report:
        """Compare with the official files."""
        return self.read()[1]


def with_report(name: str, dataset: Dataset) -> tuple[Dataset, Report]:
    """A set that its authors do not split, its notes beginning with how its files compare with the known ones."""
    report = assess_files(name, OFFICIAL[name], dataset.files, dataset.counts)
    return replace(dataset, notes=(*report.notes, *dataset.notes)), report
