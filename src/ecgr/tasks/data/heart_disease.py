"""Heart disease at four hospitals: 920 patients, 13 attributes, one file a hospital.

Janosi, Steinbrunn, Pfisterer and Detrano, "Heart Disease", UCI Machine Learning Repository, 1988
(https://archive.ics.uci.edu/dataset/45/heart+disease). A patient is ill where the diagnosis (the last column) is above
0. Each hospital fills and scales its own columns: none needs to know another's patients.
"""

from pathlib import Path

from ecgr.component import component
from ecgr.tasks.data.csv_files import Csv, SplitSeed
from ecgr.tasks.data.dataset import Dataset
from ecgr.tasks.data.image_folder import Share
from ecgr.tasks.data.known import KnownSet, with_report
from ecgr.tasks.data.locate import find_folder
from ecgr.tasks.data.official import OFFICIAL, Report

OFFICIAL_SET = OFFICIAL["heart_disease"]
ADVICE = "put the four processed.*.data files there (they cannot be fetched)"
COLUMNS = tuple(f"X{number}" for number in range(1, 15))
CATEGORIES = ("X3=1,2,3,4", "X7=0,1,2", "X11=1,2,3", "X13=0,3,6,7")
"""Chest pain, resting electrocardiogram, slope of the ST segment, thallium scan (0: not known, two of Cleveland's)."""


@component
class HeartDisease(KnownSet):
    """Heart disease in 920 patients of four hospitals (UCI): 13 attributes, ill or not; one hospital a client."""

    root: str | None = None
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        """The folder that has the hospitals' files."""
        return find_folder("heart_disease", (OFFICIAL_SET.folder,), self.root, ADVICE)

    def read(self) -> tuple[Dataset, Report]:
        """Read what hospitals are there."""
        table = Csv(
            root=str(self.folder()),
            files="processed.*.data",
            columns=COLUMNS,
            target=COLUMNS[-1],
            above=0,
            categorical=CATEGORIES,
            missing="median",
            missing_values=("?", "-9"),
            scope="client",
            test_share=self.test_share,
            split_seed=self.split_seed,
        )
        return with_report("heart_disease", table.load())
