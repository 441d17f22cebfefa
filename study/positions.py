"""How late in their client's training kept steps come: round by round, and run by run as data without run directories.

The position of step i (from 0) of T is (i + 1/2) / T, so a random choice has the mean 1/2. The variance of a mean of k
of T positions drawn without replacement is (T^2 - 1) / (12 T^2) / k * (T - k) / (T - 1).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.collect import Run
from ecgr.simulation.kept import Kept
from study.labels import labels, significant

NORMAL_95 = 1.959964

Curve = Mapping[str, Sequence[Any]]
"""``rounds``, and for each the ``mean`` position and where 95 % of random choices fall: ``chance_low`` to ``_high``."""


def positions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run that kept steps the mean position over rounds, and the 95 % range of a random choice.

    ``above`` and ``below`` are the shares of rounds outside that range; at random each would be 0.025.
    """
    return [
        {**label, "summary": _summary(curve), **curve}
        for run, label in zip(runs, labels(runs), strict=True)
        for curve in [client_curve(run.record.kept())]
        if curve["rounds"]
    ]


def client_curve(entries: Sequence[Kept]) -> Curve:
    """Each client of a round counts once.

    >>> client_curve([Kept(round=1, client=0, steps=4, kept=(3, 2))])["mean"]
    [0.75]
    """
    return _curve(entries, lambda entry: 1)


def step_curve(entries: Sequence[Kept]) -> Curve:
    """Each kept step of a round counts once: clients weigh as much as they kept.

    >>> step_curve([Kept(1, 0, 4, (3, 2)), Kept(1, 1, 2, (0,))])["mean"]  # (0.875 + 0.625 + 0.25) / 3
    [0.58333]
    """
    return _curve(entries, lambda entry: len(entry.kept))


def outside(curve: Curve, part: slice = slice(None)) -> tuple[float, float]:
    """The shares of rounds above and below the middle 95 % of random choices."""
    mean, low, high = (curve[key][part] for key in ("mean", "chance_low", "chance_high"))
    above = fmean(float(m > bound) for m, bound in zip(mean, high, strict=True))
    below = fmean(float(m < bound) for m, bound in zip(mean, low, strict=True))
    return above, below


def _summary(curve: Curve) -> dict[str, Any]:
    above, below = outside(curve)
    return {"mean": significant(fmean(curve["mean"])), "above": significant(above), "below": significant(below)}


def _curve(entries: Sequence[Kept], weight: Callable[[Kept], int]) -> Curve:
    rounds: dict[int, list[Kept]] = {}
    for entry in entries:
        if entry.kept:
            rounds.setdefault(entry.round, []).append(entry)
    curve: dict[str, list[Any]] = {"rounds": sorted(rounds), "mean": [], "chance_low": [], "chance_high": []}
    for number in curve["rounds"]:
        own = rounds[number]
        weights = [weight(entry) for entry in own]
        places = [(sum(e.kept) / len(e.kept) + 0.5) / e.steps for e in own]
        variances = [_chance_variance(e.steps, len(e.kept)) for e in own]
        mean = sum(w * p for w, p in zip(weights, places, strict=True)) / sum(weights)
        spread = math.sqrt(sum(w * w * v for w, v in zip(weights, variances, strict=True))) / sum(weights)
        curve["mean"].append(round(mean, 5))
        curve["chance_low"].append(round(max(0.0, 0.5 - NORMAL_95 * spread), 5))
        curve["chance_high"].append(round(min(1.0, 0.5 + NORMAL_95 * spread), 5))
    return curve


def _chance_variance(steps: int, kept: int) -> float:
    if steps < 2:
        return 0.0
    return (steps**2 - 1) / (12 * steps**2) / kept * (steps - kept) / (steps - 1)
