"""All benchmarks, by name, in the order in which they run."""

import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks import (
    cluster,
    fidelity,
    flower_ray,
    memory,
    overhead,
    pfl_research,
    precision,
    scale,
    selection,
    simulator,
    small_clients,
    small_models,
    start,
    verdict,
)
from benchmarks.rows import ROOT, Row, not_measured

BENCHMARKS: Mapping[str, Callable[[bool], Iterator[Row]]] = {
    "selection": selection.rows,
    "overhead": overhead.rows,
    "precision": precision.rows,
    "start": start.rows,
    "clients": small_clients.rows,
    "memory": memory.rows,
    "fidelity": fidelity.rows,
    "simulator": simulator.rows,
    "scale": scale.rows,
    "pfl": pfl_research.rows,
    "small": small_models.rows,
    "flower": flower_ray.rows,
    "ray": cluster.rows,
    "verdict": verdict.rows,
}


def run(names: list[str], quick: bool, watch: Callable[[Row], None], ended: Callable[[str, float], None]) -> list[Row]:
    """Run the named benchmarks, with one thread as workers have.

    A benchmark that breaks off loses what it has not measured yet, and no other's rows.

    Args:
        names: which, in this order.
        quick: smaller sizes.
        watch: sees each row as it comes.
        ended: sees each benchmark's name and seconds.
    """
    torch.set_num_threads(1)
    found = []
    for name in names:
        began = time.perf_counter()
        for row in _unbroken(name, BENCHMARKS[name](quick)):
            found.append(row)
            watch(row)
        ended(name, time.perf_counter() - began)
    return found


def _unbroken(name: str, rows: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from rows
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        yield not_measured(f"{name}: the rest of it", 1.0, "at most", f"{type(error).__name__}: {reason}")


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
