"""Data sets, read and checked once. Needs numpy, not torch."""

from ecgr.tables import Table
from ecgr.tasks.data.arrays import Arrays, Site
from ecgr.tasks.data.cifar import Cifar10, Cifar100
from ecgr.tasks.data.dataset import Dataset, DatasetSource, hold_out, image_dataset, strata, stratify
from ecgr.tasks.data.digits import Digits
from ecgr.tasks.data.idx import FashionMnist, Mnist
from ecgr.tasks.data.image_folder import LC25000, ImageFolder
from ecgr.tasks.data.tables import Csv, HeartDisease
from ecgr.tasks.data.text import Shakespeare, Text

DATASETS: Table[DatasetSource] = Table(
    "data set",
    "datasets",
    {
        "digits": Digits,
        "mnist": Mnist,
        "fashion_mnist": FashionMnist,
        "cifar10": Cifar10,
        "cifar100": Cifar100,
        "image_folder": ImageFolder,
        "lc25000": LC25000,
        "arrays": Arrays,
        "csv": Csv,
        "text": Text,
        "heart_disease": HeartDisease,
        "shakespeare": Shakespeare,
        "site": Site,
    },
)

__all__ = [
    "DATASETS",
    "LC25000",
    "Arrays",
    "Cifar10",
    "Cifar100",
    "Csv",
    "Dataset",
    "DatasetSource",
    "Digits",
    "FashionMnist",
    "HeartDisease",
    "ImageFolder",
    "Mnist",
    "Shakespeare",
    "Site",
    "Text",
    "hold_out",
    "image_dataset",
    "strata",
    "stratify",
]
