"""Data sets and ways of dealing them out to clients. Needs numpy, not torch."""

from collections.abc import Callable, Mapping

from ecgr.data.cifar import Cifar10, Cifar100
from ecgr.data.dataset import Dataset, DatasetSource, Split, stratified
from ecgr.data.digits import Digits
from ecgr.data.idx import FashionMnist, Mnist
from ecgr.data.image_folder import ImageFolder
from ecgr.data.lc25000 import LC25000
from ecgr.data.partition import Partition, Partitioner, deal_out, top_up
from ecgr.data.partition_file import load_partition, save_partition
from ecgr.data.partitioners import IID, Dirichlet, Groups, Quantity, Shards

DATASETS: Mapping[str, Callable[..., DatasetSource]] = {
    "digits": Digits,
    "mnist": Mnist,
    "fashion_mnist": FashionMnist,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "image_folder": ImageFolder,
    "lc25000": LC25000,
}
PARTITIONERS: Mapping[str, Callable[..., Partitioner]] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "shards": Shards,
    "quantity": Quantity,
    "groups": Groups,
}

__all__ = [
    "DATASETS",
    "IID",
    "LC25000",
    "PARTITIONERS",
    "Cifar10",
    "Cifar100",
    "Dataset",
    "DatasetSource",
    "Digits",
    "Dirichlet",
    "FashionMnist",
    "Groups",
    "ImageFolder",
    "Mnist",
    "Partition",
    "Partitioner",
    "Quantity",
    "Shards",
    "Split",
    "deal_out",
    "load_partition",
    "save_partition",
    "stratified",
    "top_up",
]
