"""How late in their client's training kept steps come, run by run, as data that needs no run directory."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.arms import Run
from ecgr.report.page.step_maps import late_curve
from study.labels import labels, significant


def positions(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run that kept steps the mean position over rounds, and the 95 % range of a random choice.

    ``above`` and ``below`` are the shares of rounds outside that range; at random each would be 0.025.
    """
    return [
        {**label, "summary": _summary(curve), **curve}
        for run, label in zip(runs, labels(runs), strict=True)
        for curve in [late_curve(run.record.kept())]
        if curve["rounds"]
    ]


def _summary(curve: dict[str, list[Any]]) -> dict[str, Any]:
    low, mean, high = curve["chance_low"], curve["mean"], curve["chance_high"]
    return {
        "mean": significant(fmean(mean)),
        "above": significant(fmean(float(m > top) for m, top in zip(mean, high, strict=True))),
        "below": significant(fmean(float(m < bottom) for m, bottom in zip(mean, low, strict=True))),
    }
