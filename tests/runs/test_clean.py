"""What can be made again is shown, and removed where that is said; records, models and answers stay as they are."""

import json
from pathlib import Path

import numpy as np
import pytest

from ecgr.errors import EnvironmentFault
from ecgr.runs.clean import size_of, spare
from ecgr.runs.record import acquire
from support.commands import ecgr
from support.runs import write_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A comparison that is answered, one that is not, a run that is under way; each with checkpoints."""
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    for name in (f"pictures-{'0' * 32}-{'1' * 64}.npy", "pictures-mine.npy"):
        np.save(tmp_path / "cache" / name, np.zeros(10))
    folder = tmp_path / "runs"
    for name in ("answered/runs/a", "answered/tuning/t", "open/runs/b", "open/tuning/u", "alone"):
        directory = folder / name
        write_run(directory, seed=0, finished=name != "alone")
        (directory / "checkpoint").mkdir()
        (directory / "checkpoint" / "round-0000001.safetensors").write_bytes(bytes(1000))
    for name in ("comparison.json", "tuning.json", "report.html"):
        (folder / "answered" / name).write_text(json.dumps({}))
    (folder / "open" / "tuning.json").write_text("{}")
    return folder


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_it_is_shown_and_then_removed(runs: Path) -> None:
    before, cached = content(runs), content(runs.parent / "cache")
    gone = {each.path.relative_to(runs.parent).as_posix() for each in spare(runs)}
    (pixels,) = (path for path in cached if len(path.name) > 40)
    expected = ["answered/tuning/t", "answered/runs/a/checkpoint", "open/runs/b/checkpoint", "open/tuning/u/checkpoint"]
    assert gone == {*(f"runs/{name}" for name in expected), pixels.relative_to(runs.parent).as_posix()}
    shown = ecgr("clean", runs).stdout
    assert content(runs) == before
    assert "checkpoints of finished runs: 3, 3.0 kB" in shown
    assert "bytes can be freed; to remove them: ecgr clean" in shown
    whole = sum(size_of(each.path) for each in spare(runs))
    assert f"{whole:,} bytes freed" in ecgr("clean", runs, "--yes").stdout
    stays = {path: held for path, held in before.items() if not any(f"/{name}/" in str(path) for name in expected)}
    assert content(runs) == stays
    assert content(runs.parent / "cache") == {path: held for path, held in cached.items() if path != pixels}
    assert "nothing can be made again" in ecgr("clean", runs, "--yes").stdout


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    done = ecgr("clean", tmp_path, "--yes")
    assert done.returncode == 2
    assert "holds no run or comparison; nothing was removed" in done.stderr
    (tmp_path / "run.json").write_text("{}")
    assert ecgr("clean", tmp_path, "--yes").returncode == 3
    assert (tmp_path / "checkpoint").is_dir()


def test_a_run_in_use_keeps_what_it_has(runs: Path) -> None:
    (own,) = (each for each in spare(runs) if each.path.name == "t")
    lock = acquire(own.path)
    with pytest.raises(EnvironmentFault, match="is in use"):
        own.remove()
    lock.release()
    own.remove()
    assert not own.path.exists()
