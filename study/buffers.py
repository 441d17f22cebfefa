"""What became of BatchNorm's buffers, its running means and variances, run by run, as data without run directories.

Where they pass through an algorithm like weights, their recursion can diverge: a factor below -1 says so, and negative
variances are what comes of it.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.collect import Run
from study.labels import labels, significant

LAST = 5
"""Rounds whose mean accuracy counts as final, as everywhere in the reports."""
DIVERGES = -1.0
"""Below this factor the buffers grow from round to round."""


def buffers(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run whose model has such buffers: accuracy, smallest variance and factor over rounds, summed up."""
    return [
        {**label, **summarise(rows)}
        for run, label in zip(runs, labels(runs), strict=True)
        for rows in [[row for row in run.rounds if _buffers(row)]]
        if rows
    ]


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The series of one run and their summary. A variance that is not a finite number is None, and counted apart.

    >>> row = {"round": 1, "accuracy": 0.1, "buffers": {"smallest_variance": -2.0, "factor": -1.25}}
    >>> summarise([row])["summary"] == {
    ...     "final_accuracy": 0.1, "smallest_factor": -1.25, "smallest_variance": -2.0,
    ...     "rounds": 1, "rounds_diverging": 1, "rounds_negative": 1, "rounds_not_finite": 0}
    True
    """
    series = {
        "rounds": [row["round"] for row in rows],
        "accuracy": [significant(row.get("accuracy")) for row in rows],
        "smallest_variance": [significant(_buffers(row).get("smallest_variance")) for row in rows],
        "factor": [significant(_buffers(row).get("factor")) for row in rows],
    }
    variances, factors = _present(series["smallest_variance"]), _present(series["factor"])
    final = _present(series["accuracy"][-LAST:])
    summary = {
        "rounds": len(rows),
        "rounds_negative": sum(value < 0 for value in variances),
        "rounds_not_finite": len(rows) - len(variances),
        "rounds_diverging": sum(value < DIVERGES for value in factors),
        "smallest_variance": min(variances, default=None),
        "smallest_factor": min(factors, default=None),
        "final_accuracy": significant(fmean(final)) if final else None,
    }
    return {"summary": summary, **series}


def _buffers(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a round says of them; older records call it statistics."""
    found = row.get("buffers", row.get("statistics"))
    return found if isinstance(found, Mapping) else {}


def _present(values: Sequence[Any]) -> list[float]:
    return [value for value in values if value is not None]
