"""Findings made up for what is said and drawn about them."""

from dataclasses import replace
from typing import Any

import numpy as np

from ecgr.analysis.comparison import Comparison, compare
from ecgr.analysis.curves import Estimate, Speed
from ecgr.analysis.findings import Pair
from ecgr.analysis.summaries import RunSummary


def pair_of(verdict: Any, mean: float = 0.007, factor: float = 2.0, **more: Any) -> Pair:
    """A pair with ten seeds and 60 rounds: its verdict, its difference, how much sooner."""
    log = Estimate((float(np.log(factor)),) * 10, float(np.log(factor)), (np.log(0.85 * factor), np.log(1.15 * factor)))
    made = Pair(
        "fedavgm",
        "fedavg",
        tuple(range(10)),
        verdict,
        difference=Estimate((mean,) * 10, mean, (mean - 0.006, mean + 0.006), 0.002, 0.01),
        speed=Speed(0.80, log, 0, 0, (30.0, 60.0)),
        levelled_off=verdict in ("better", "worse", "equal"),
        score=0.8 + mean,
        baseline_score=0.8,
        margin=0.005,
        rounds=60,
    )
    return replace(made, **more)


def comparison_of(*pairs: Pair, tuned: bool = True, **more: Any) -> Comparison:
    runs = [RunSummary("fedavg", 0, (0.8,) * 60, tuned=tuned, rate=0.1)]
    return replace(Comparison("fedavg", tuple(pairs), summaries=runs), **more)


def made_up(gains: dict[str, float], seeds: int = 10, rounds: int = 8) -> Comparison:
    """Flat curves, each above the baseline's by its gain, with a little noise; the baseline is added."""
    return compare(
        [
            RunSummary(name, seed, (0.5 + gain + (seed - 4.5) / 1000 * (name != "fedavg"),) * rounds, rate=0.1)
            for name, gain in {"fedavg": 0.0, **gains}.items()
            for seed in range(seeds)
        ]
    )


def tuning_of(agreeing: int) -> dict[str, Any]:
    """Three trials of a method, and how many of four seeds agree with the choice."""
    trials = [
        {"values": {"optimizer.lr": rate}, "mean": score, "scores": [{"100": score, "101": score}]}
        for rate, score in ((0.01, 0.5), (0.1, 0.8), (1.0, None))
    ]
    without = {str(seed): {"optimizer.lr": 0.1} for seed in range(4)}
    return {"chosen": {"optimizer.lr": 0.1}, "agreeing": agreeing, "without": without, "trials": trials}
