"""The paper's presets on the real images (skipped where they are not), and on LC25000's layout."""

import json
import os
from pathlib import Path

import pytest

from ecgr.config.experiment import load, presets
from ecgr.tasks.data import LC25000
from support.commands import ecgr, sets
from support.image_sets import write_lc25000

needs_images = pytest.mark.skipif(not os.environ.get("ECGR_DATA"), reason="$ECGR_DATA names no folder of image sets")


@needs_images
@pytest.mark.parametrize(
    ("preset", "fraction"),
    [
        ("paper/mnist", 0.1),
        pytest.param("paper/fashion_mnist", 0.1, marks=pytest.mark.nightly),
        pytest.param("reduced/cifar10", 0.02, marks=pytest.mark.nightly),
        ("reduced/cifar100", 0.05),
    ],
)
def test_presets_train_on_the_real_images(preset: str, fraction: float, tmp_path: Path) -> None:
    settings = sets("federation.rounds=1", f"data.fraction={fraction}", "partition.min_batches=1")
    done = ecgr("run", preset, *settings, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["round"] == 1
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert all(len(digest) == 64 for digest in manifest["data"].values())


@pytest.mark.nightly
def test_lc25000_trains_and_no_tile_stands_on_both_sides(tmp_path: Path) -> None:
    write_lc25000(tmp_path / "data")
    small = ["data.image_size=32", "partition.clients=2", "federation.batch_size=4", "federation.rounds=1"]
    settings, cache = sets(f"data.root={tmp_path / 'data'}", *small), str(tmp_path / "cache")
    done = ecgr("run", "paper/lc25000", *settings, "--out", tmp_path / "run", ECGR_CACHE=cache)
    assert done.returncode == 0, done.stderr

    dataset = LC25000(root=str(tmp_path / "data"), image_size=32).load()
    sides = [set(zip(half.targets, half.groups, strict=True)) for half in (dataset.train, dataset.test)]
    assert not sides[0] & sides[1]


@pytest.mark.parametrize("name", sorted(name for name in presets() if name.startswith(("reduced/", "study/bases/"))))
def test_smaller_presets_keep_the_number_of_steps(name: str) -> None:
    """The study's base of CIFAR-100 is for a set of a fifth of the images."""
    own, full = load(name), load(f"paper/{name.rpartition('/')[2]}")
    share = own.data.fraction / full.data.fraction / (5 if name == "study/bases/cifar100" else 1)
    assert own.federation.batch_size == full.federation.batch_size * share
    assert own.partition == full.partition
    drops = full.federation.rounds / full.schedule.every  # type: ignore[attr-defined]
    assert own.federation.rounds / own.schedule.every == drops  # type: ignore[attr-defined]
    assert own.schedule == full.schedule or not name.startswith("reduced/")
