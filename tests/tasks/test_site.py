"""A site's own file: run where $ECGR_TASK says so, checked like any other data."""

from pathlib import Path

import pytest

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.arrays import Site

GOOD = """
import numpy as np

def load():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 4)), rng.integers(0, 2, size=30)
    return (x[:20], y[:20]), (x[20:], y[20:])
"""


def write(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
    path = folder / "task.py"
    path.write_text(text)
    monkeypatch.setenv("ECGR_TASK", str(path))
    return path


def test_a_sites_samples_are_what_its_file_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(monkeypatch, tmp_path, GOOD)
    data = Site().load()
    assert (len(data.train), len(data.test), dict(data.shape)) == (20, 10, {"features": 4, "outputs": 1})
    assert (data.loss, data.metrics[0]) == ("bce", "auc")
    assert Site(kind="classes", classes=5).load().shape["classes"] == 5, "classes that a site lacks can be stated"
    with pytest.raises(DataError, match=r"task\.py: train: label 1 at index \d+; labels go from 0 to 0"):
        Site(kind="classes", classes=1).load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1", "has no function `load`"),
        ("def load():\n    return 3", "load gives int"),
        ("def load():\n    return ([1], [2]), 7", r"test: expected \(inputs, targets\), got int"),
        ("def load():\n    raise ValueError('no column')", r"cannot load the samples \(ValueError: no column"),
        ("def load():\n    return ([[1.0]], [1, 2]), ([[1.0]], [1])", "1 rows of inputs for 2 targets"),
        ("def load(:", "cannot load the samples"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, complaint: str
) -> None:
    write(monkeypatch, tmp_path, text)
    with pytest.raises(DataError, match=complaint):
        Site().load()


def test_without_a_file_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECGR_TASK", raising=False)
    with pytest.raises(ConfigError, match=r"\$ECGR_TASK: not set"):
        Site().load()
    monkeypatch.setenv("ECGR_TASK", "/nowhere/task.py")
    with pytest.raises(ConfigError, match=r"/nowhere/task\.py is not a file"):
        Site().load()
