"""The same work in Flower's own simulation engine (Ray), which is installed for this comparison only."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator

from benchmarks.flower_environment import Unavailable, python_with_ray
from benchmarks.rows import ROOT, Row, at_least, not_measured, shown

CASES = {(10, 6000): 1.8, (200, 300): 12.0}
"""Clients and samples of each: how many times faster this simulator has to be."""


def rows(quick: bool) -> Iterator[Row]:
    cases = {size: limit for size, limit in CASES.items() if not (quick and size[0] > 10)}
    try:
        python = python_with_ray()
    except Unavailable as error:
        for (clients, samples), limit in cases.items():
            yield not_measured(_name(clients, samples), limit, "at least", f"no flwr[simulation]: {error}")
        return
    for (clients, samples), limit in cases.items():
        for style in ("quickstart", "tuned"):
            yield _measured(python, clients, samples, limit, style)


def _name(clients: int, samples: int) -> str:
    return f"simulator: Flower with Ray / ours, {clients} clients of {samples:,} samples"


def _measured(python: str, clients: int, samples: int, limit: float, style: str) -> Row:
    command = [python, "-m", "benchmarks.flower_probe", str(clients), str(samples), style]
    with tempfile.TemporaryDirectory() as home:
        variables = as_flower_is_run(home)
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    name = _name(clients, samples)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        return not_measured(name, limit, "at least", reason)
    measured = json.loads(done.stdout.strip().splitlines()[-1])
    note = f"{measured['flower']:.2f} s against {measured['ours']:.2f} s a round"
    ratio = measured["flower"] / measured["ours"]
    if style == "tuned":
        return shown(f"{name}, tuned client", ratio, note)
    return at_least(name, ratio, limit, f"{note}; {measured['loading']:.2f} s of it in Flower Datasets")


def as_flower_is_run(home: str) -> dict[str, str]:
    """Flower decides on its threads itself; nothing is asked of the network."""
    variables = {key: value for key, value in os.environ.items() if key not in {"OMP_NUM_THREADS", "PYTHONPATH"}}
    return {
        **variables,
        "FLWR_HOME": home,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HOME": home,
        "HF_HUB_OFFLINE": "1",
    }
