"""The same work in Flower's own simulation engine (Ray), which is installed for this comparison only."""

import os
import tempfile
from collections.abc import Iterator

from benchmarks.environments import FLOWER, Unavailable
from benchmarks.rows import Row, at_least, missed, not_measured, probe, shown

CASES = {(10, 6000): 3.2, (200, 300): 8.5}
"""Clients and samples of each: how many times faster this simulator has to be."""
GOALS = {(10, 6000): 1.8, (200, 300): 12.0}


def rows(quick: bool) -> Iterator[Row]:
    cases = {size: limit for size, limit in CASES.items() if not (quick and size[0] > 10)}
    try:
        python = FLOWER.python()
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
    except RuntimeError as error:
        yield not_measured(name, limit, "at least", str(error))
        return
    ours = first["ours"]
    note = (
        f"{first['flower']:.2f} s against {ours:.2f} s a round; {first['loading']:.2f} s of it for cutting partitions"
    )
    ratio, goal = first["flower"] / ours, GOALS[clients, samples]
    note += missed(ratio, goal, "at least", f"it would be {first['flower'] / goal:.2f} s a round")
    yield at_least(name, ratio, limit, note)
    note = f"{tuned['flower']:.2f} s against {ours:.2f} s a round"
    yield shown(f"{name}, tuned client", tuned["flower"] / ours, note)


def _name(clients: int, samples: int) -> str:
    return f"flower: Flower with Ray / ours, {clients} clients of {samples:,} samples"


def _probe(python: str, clients: int, samples: int, style: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        variables = as_flower_is_run(home)
        measured: dict[str, float] = probe("flower_probe", clients, samples, style, python=python, variables=variables)
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
