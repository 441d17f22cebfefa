"""How often the analysis errs: verdicts where nothing differs, intervals that miss, effects that are found.

``python -m study.error_rates`` simulates curves, lets `ecgr.analysis.findings` judge them and prints the table of
``docs/reference/statistics.md``. Curves approach a plateau; a seed shifts plateau and pace for all methods (they are
paired), a method adds noise of its own: normal, or skewed, where one run in twenty collapses by several points.
"""

import math
import sys
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ecgr.analysis.curves import Curves, arrival
from ecgr.analysis.findings import Pair, estimate, judge

ROUNDS, SEEDS, MARGIN = 80, 10, 0.005
SIMULATIONS = 1000
POPULATION = 20_000
"""Seeds from which the true difference and factor are taken."""

Rng = np.random.Generator


def simulate(
    rng: Rng, seeds: int, methods: Sequence[tuple[float, float]], collapse: float
) -> list[NDArray[np.float64]]:
    """Curves (seeds x rounds) of each method, given by what it adds to the plateau and divides the pace by."""
    rounds = np.arange(1, ROUNDS + 1)
    plateau, pace = 0.9 + rng.normal(0, 0.001, seeds), 12 * np.exp(rng.normal(0, 0.1, seeds))
    found = []
    for gain, faster in methods:
        own = plateau + gain + rng.normal(0, 0.001, seeds)
        own -= collapse * (rng.random(seeds) < 0.05) * rng.exponential(0.02, seeds)
        speed = pace / faster * np.exp(rng.normal(0, 0.15, seeds))
        found.append(own[:, None] - 0.7 * np.exp(-rounds / speed[:, None]))
    return found


def by_seed(curves: NDArray[np.float64]) -> Curves:
    """As the analysis takes them."""
    return dict(enumerate(curves.tolist()))


def truth(gain: float, faster: float, collapse: float) -> tuple[float, float]:
    """The difference of the ends and the log of the factor that infinitely many seeds would give."""
    base, method = simulate(np.random.default_rng(1), POPULATION, [(0.0, 1.0), (gain, faster)], collapse)
    target = base[:, -1].mean() - MARGIN
    rounds = [[arrival(curve, target) or ROUNDS for curve in curves] for curves in (base, method)]
    logs = [math.log(before / after) for before, after in zip(*rounds, strict=True)]
    return float((method[:, -1] - base[:, -1]).mean()), fmean(logs)


def says_something(pair: Pair) -> bool:
    """Whether a difference of any kind was claimed."""
    return pair.verdict in ("better", "worse", "ahead", "behind") or pair.sooner is not None


def null_rate(collapse: float, methods: int = 4, simulations: int = SIMULATIONS) -> float:
    """How often any of several methods that equal the baseline is said to differ, in end or speed."""
    rng, wrong = np.random.default_rng(2), 0
    for _ in range(simulations):
        runs = simulate(rng, SEEDS, [(0.0, 1.0)] * (methods + 1), collapse)
        named = {f"m{i}": by_seed(curves) for i, curves in enumerate(runs)}
        wrong += any(says_something(pair) for pair in judge(estimate(named, "m0", MARGIN)))
    return wrong / simulations


def effect(gain: float, faster: float, collapse: float, simulations: int = SIMULATIONS) -> dict[str, float]:
    """How often the two intervals hold the truth, and how often the effect is found."""
    rng, (difference, log) = np.random.default_rng(3), truth(gain, faster, collapse)
    held = {"end": 0, "speed": 0, "factors": 0, "found end": 0, "found speed": 0}
    for _ in range(simulations):
        base, method = (by_seed(curves) for curves in simulate(rng, SEEDS, [(0.0, 1.0), (gain, faster)], collapse))
        (pair,) = judge(estimate({"base": base, "method": method}, "base", MARGIN))
        assert pair.difference is not None and pair.difference.interval is not None and pair.speed is not None
        low, high = pair.difference.interval
        held["end"] += low <= difference <= high
        if pair.speed.log is not None and pair.speed.log.interval is not None:
            held["factors"] += 1
            held["speed"] += pair.speed.log.interval[0] <= log <= pair.speed.log.interval[1]
        held["found end"] += pair.verdict in ("better", "ahead")
        held["found speed"] += pair.sooner == "sooner"
    return {
        "end": held["end"] / simulations,
        "speed": held["speed"] / max(1, held["factors"]),
        "factors": held["factors"] / simulations,
        "found end": held["found end"] / simulations,
        "found speed": held["found speed"] / simulations,
    }


def table() -> str:
    """The table of the reference page."""
    percent = "{:.1f} %".format
    lines = [
        "| noise | truth | any false verdict of 4 methods | end's interval holds | speed's interval holds | end found |"
        " speed found |",
        "|---|---|---|---|---|---|---|",
    ]
    for noise, collapse in (("normal", 0.0), ("one run in twenty collapses", 1.0)):
        lines.append(f"| {noise} | no difference | {percent(100 * null_rate(collapse))} | | | | |")
        for gain, faster in ((0.01, 1.0), (0.0, 1.5), (0.01, 1.5)):
            rates = effect(gain, faster, collapse)
            words = [f"+{100 * gain:g} points"] * (gain > 0) + [f"{faster:g} times sooner"] * (faster > 1)
            shown = [percent(100 * rates[key]) for key in ("end", "speed", "found end", "found speed")]
            lines.append(f"| {noise} | {' and '.join(words)} | | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
