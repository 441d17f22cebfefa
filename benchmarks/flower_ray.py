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
        yield from _comparison(python, clients, samples, limit)


def _comparison(python: str, clients: int, samples: int, limit: float) -> Iterator[Row]:
    """Both Flower clients against ours, which is measured before and after the first of them."""
    name = _name(clients, samples)
    try:
        first, tuned = (_probe(python, clients, samples, style) for style in ("quickstart", "tuned"))
    except Unavailable as error:
        yield not_measured(name, limit, "at least", str(error))
        return
    ours = first["ours"]
    note = (
        f"{first['flower']:.2f} s against {ours:.2f} s a round; {first['loading']:.2f} s of it for cutting partitions"
    )
    yield at_least(name, first["flower"] / ours, limit, note)
    note = f"{tuned['flower']:.2f} s against {ours:.2f} s a round"
    yield shown(f"{name}, tuned client", tuned["flower"] / ours, note)


def _name(clients: int, samples: int) -> str:
    return f"simulator: Flower with Ray / ours, {clients} clients of {samples:,} samples"


def _probe(python: str, clients: int, samples: int, style: str) -> dict[str, float]:
    command = [python, "-m", "benchmarks.flower_probe", str(clients), str(samples), style]
    with tempfile.TemporaryDirectory() as home:
        variables = as_flower_is_run(home)
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["it failed"])[-1])
    measured: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return measured


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
