"""Four hospitals with patients like those of the real files: all together, and each in a folder of its own."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from ecgr.config.experiment import Experiment
from ecgr.flower import Guard
from ecgr.runs.record import RunRecord
from support.federations import federate

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SIZES = (60, 44, 31, 52)


def _write_hospital(path: Path, rng: np.random.Generator, patients: int) -> None:
    """Patients like those of the real files: numbers, categories, a diagnosis that follows from them, some unknown."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(f"X{n}" for n in range(1, 15))]
    for _ in range(patients):
        age, rate, pain = rng.integers(30, 75), rng.integers(90, 190), rng.integers(1, 5)
        ill = int(age / 10 + pain - rate / 40 + rng.normal() > 4)
        row: list[Any] = [age, rng.integers(0, 2), pain, rng.integers(95, 180), rng.integers(130, 400)]
        row += [rng.integers(0, 2), rng.integers(0, 3), rate, rng.integers(0, 2), round(float(rng.uniform(0, 4)), 1)]
        row += [rng.integers(1, 4), rng.choice(["0", "1", "?"]), rng.choice([3, 6, 7]), ill]
        lines.append(",".join(map(str, row)))
    path.write_text("\n".join(lines) + "\n")


def write_hospitals(root: Path) -> None:
    """``all/`` with four files, and below ``sites/`` a folder for each hospital with its own."""
    for name, size, seed in zip(HOSPITALS, SIZES, range(4), strict=True):
        for place in (root / "all", root / "sites" / name):
            file = place / "heart-disease" / f"processed.{name}.data"
            _write_hospital(file, np.random.default_rng(seed), size)


def hospital_experiment(algorithm: str = "fedavg", regulator: str = "none", rounds: int = 3) -> Experiment:
    """A hospital a client."""
    return Experiment.from_dict(
        {
            "data": {"name": "heart_disease"},
            "partition": {"name": "groups", "clients": 4, "min_batches": 1},
            "model": {"name": "mlp"},
            "algorithm": {"name": algorithm},
            "regulator": {"name": regulator},
            "optimizer": {"name": "sgd", "lr": 0.05},
            "federation": {"rounds": rounds, "batch_size": 8},
        }
    )


def hospital_nodes(root: Path) -> list[dict[str, Any]]:
    """A node a hospital, each with its own files and its own state."""
    return [
        {"partition-id": client, "data-root": str(root / "sites" / name), "state-dir": str(root / "states" / name)}
        for client, name in enumerate(HOSPITALS)
    ]


def federate_hospitals(chosen: Experiment, root: Path, out: Path, **options: Any) -> RunRecord:
    """A federation of the hospitals below ``root``; the server has no data, and perhaps a list of sites: ``listed``."""
    own = {"sites": hospital_nodes(root), "guard": Guard(deadline=60), "local_data": True, **options}
    with patch.dict("os.environ", ECGR_DATA="/nowhere"):
        return federate(chosen, out, **own)
