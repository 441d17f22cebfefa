"""Data sets and ways of dealing them out to clients. Needs numpy, not torch."""

from collections.abc import Callable, Mapping

from ecgr.data.dataset import Dataset, DatasetSource, Split, stratified
from ecgr.data.digits import Digits
from ecgr.data.partition import Partition, Partitioner, top_up
from ecgr.data.partitioners import IID, Dirichlet

DATASETS: Mapping[str, Callable[..., DatasetSource]] = {"digits": Digits}
PARTITIONERS: Mapping[str, Callable[..., Partitioner]] = {"iid": IID, "dirichlet": Dirichlet}

__all__ = [
    "DATASETS",
    "IID",
    "PARTITIONERS",
    "Dataset",
    "DatasetSource",
    "Digits",
    "Dirichlet",
    "Partition",
    "Partitioner",
    "Split",
    "stratified",
    "top_up",
]
