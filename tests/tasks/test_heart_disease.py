"""Heart disease and tiny Shakespeare: thin uses of csv and text, known by the hashes of their files."""

import os
from pathlib import Path

import numpy as np
import pytest

from ecgr.errors import DataError
from ecgr.tasks.data import HeartDisease, Shakespeare, available, verify

HEADER = ",".join(f"X{i}" for i in range(1, 15)) + "\n"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def patient(i: int, missing: str = "-9") -> str:
    chest_pain, slope, thal = 1 + i % 4, 1 + i % 3, (3, 6, 7)[i % 3]
    cholesterol = missing if i % 5 == 0 else str(200 + i)
    return f"{40 + i},{i % 2},{chest_pain}.0,120,{cholesterol},0,{i % 3},150,0,1.5,{slope},{missing},{thal},{i % 5}\n"


def write(root: Path, hospitals: tuple[str, ...] = HOSPITALS, header: str = HEADER, missing: str = "-9") -> str:
    folder = root / "heart-disease"
    folder.mkdir(parents=True, exist_ok=True)
    for start, hospital in enumerate(hospitals):
        rows = "".join(patient(10 * start + i, missing) for i in range(20))
        (folder / f"processed.{hospital}.data").write_text(header + rows)
    return str(root)


def test_one_hospital_a_client(tmp_path: Path) -> None:
    dataset = HeartDisease(root=write(tmp_path)).load()
    assert tuple(sorted(set(dataset.train.groups))) == tuple(sorted(set(dataset.test.groups))) == HOSPITALS
    assert dataset.shape == {"features": 9 + 4 + 3 + 3 + 4, "outputs": 1}
    assert (dataset.loss, dataset.metrics[0]) == ("bce", "auc")
    assert (len(dataset.train), len(dataset.test)) == (64, 16)
    assert dataset.train.targets.mean() == pytest.approx(0.8, abs=0.05)  # diagnoses 1 to 4 of 0 to 4


def test_uci_files_have_no_header_and_question_marks(tmp_path: Path) -> None:
    ours = HeartDisease(root=write(tmp_path / "ours")).load()
    theirs = HeartDisease(root=write(tmp_path / "theirs", header="", missing="?")).load()
    np.testing.assert_array_equal(ours.train.inputs, theirs.train.inputs)


def test_a_hospital_alone_has_the_samples_it_has_among_the_others(tmp_path: Path) -> None:
    together = HeartDisease(root=write(tmp_path / "all")).load()
    alone = HeartDisease(root=write(tmp_path / "one", ("cleveland",))).load()
    own = together.train.groups == "cleveland"
    np.testing.assert_array_equal(together.train.inputs[own], alone.train.inputs)
    np.testing.assert_array_equal(together.test.targets[together.test.groups == "cleveland"], alone.test.targets)


def test_other_bytes_are_said_in_the_record(tmp_path: Path) -> None:
    report = verify("heart_disease", write(tmp_path))
    assert report.status == "whole"
    assert report.details[0].startswith("whole: other bytes in processed.cleveland.data, ")
    assert HeartDisease(root=str(tmp_path)).load().notes[0] == report.details[0]


def test_what_is_missing_is_said_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"heart_disease: no heart-disease/ in .* put the four"):
        HeartDisease(root=str(tmp_path)).load()
    with pytest.raises(DataError, match=r"shakespeare: no tiny-shakespeare/ in .*; run `ecgr data fetch shakespeare`"):
        Shakespeare(root=str(tmp_path)).load()
    (tmp_path / "heart-disease").mkdir()
    with pytest.raises(DataError, match=r"no processed\.\*\.data in"):
        HeartDisease(root=str(tmp_path)).load()


there = {row.name for row in available() if row.place} if os.environ.get("ECGR_DATA") else set()


@pytest.mark.skipif(not {"heart_disease", "shakespeare"} <= there, reason="not below $ECGR_DATA")
def test_the_real_files() -> None:
    hospitals = HeartDisease().load()
    assert verify("heart_disease").status == verify("shakespeare").status == "official"
    assert len(hospitals.train) + len(hospitals.test) == 920
    names, counts = np.unique(hospitals.train.groups, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        "cleveland": 242,
        "hungarian": 235,
        "switzerland": 98,
        "va": 160,
    }
    plays = Shakespeare().load()
    assert plays.shape == {"vocabulary": 65, "classes": 65, "length": 80}
    assert "JULIET" in plays.train.groups
    assert plays.notes == ("64 of 309 speakers say at least 5,000 characters",)
