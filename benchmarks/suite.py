"""All benchmarks, by name, in the order in which they run."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks import cluster, fidelity, flower_ray, memory, overhead, precision, scale, selection, simulator
from benchmarks.rows import ROOT, Row

BENCHMARKS: Mapping[str, Callable[[bool], Iterator[Row]]] = {
    "selection": selection.rows,
    "overhead": overhead.rows,
    "precision": precision.rows,
    "memory": memory.rows,
    "fidelity": fidelity.rows,
    "simulator": simulator.rows,
    "scale": scale.rows,
    "flower": flower_ray.rows,
    "ray": cluster.rows,
}


def run(names: list[str], quick: bool, watch: Callable[[Row], None]) -> list[Row]:
    """Run the named benchmarks, with one thread as workers have; ``watch`` sees each row as it comes."""
    torch.set_num_threads(1)
    found = []
    for name in names:
        for row in BENCHMARKS[name](quick):
            found.append(row)
            watch(row)
    return found


def circumstances() -> dict[str, Any]:
    """What the numbers were measured on."""
    revision = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = subprocess.run(revision, capture_output=True, text=True, check=False).stdout.strip()
    load = os.getloadavg()
    return {
        "commit": commit or "unknown",
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(load[0], 2),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
