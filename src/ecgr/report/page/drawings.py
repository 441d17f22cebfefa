"""Everything that a report draws, as one JSON-able dict; pure, from runs and their comparison.

Numbers are shortened to five digits, except that which steps were kept is exact (see `step_maps`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from ecgr.analysis.arms import Arm, Group
from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import Comparison
from ecgr.analysis.quantities import MARGIN
from ecgr.report.page.step_maps import step_maps
from ecgr.simulation.kept import Kept

CURVES = ("accuracy", "loss", "train_loss")
MOST_FEDERATIONS = 20
FIRST = {
    "drift": "how far clients end from the global model",
    "gradient_diversity": "1 if all updates are equal",
    "pairwise_cosine": "mean cosine of the updates of two clients",
    "cos_before_mu": "cosine of the plain average with the true gradient",
    "cos_after_mu": "cosine of the regulated average with the true gradient",
    "norm_ratio": "length of the average step, regulated over plain",
    "assumption_mu": "share of clients whose kept steps point more along the true gradient than the others",
    "conclusion_mu": "share of clients whose update regulation turned towards the true gradient",
    "cos_v_c": "cosine of a client's regulated and plain update",
}
"""Diagnostics to show first, and what they are; any others follow by name."""
Series = dict[str, list[Any]]


def page_data(groups: Sequence[Group], comparison: Comparison, baseline: str = "none") -> dict[str, Any]:
    """What the page's scripts read."""
    colours = colour_numbers(groups, baseline)
    kept = {id(run): run.record.kept() for group in groups for arm in group.arms for run in arm.runs}
    return {
        "groups": [
            {
                "label": group.label,
                "arms": [
                    {
                        "label": arm.regulator,
                        "colour": colours[arm.regulator],
                        "runs": [_curves(run) for run in arm.runs],
                    }
                    for arm in group.arms
                ],
            }
            for group in groups
        ],
        "pairs": _pairs(comparison, colours),
        "margin": 100 * MARGIN,
        "steps": _steps(groups, kept),
        "federations": _federations(groups),
        "diagnostics": [_diagnostics(group, colours) for group in groups],
        "cost": [
            {"label": arm.label, "colour": colours[arm.regulator], **quartiles(seconds(arm))}
            for group in groups
            for arm in group.arms
            if seconds(arm)
        ],
    }


def colour_numbers(groups: Sequence[Group], baseline: str = "none") -> dict[str, int]:
    """Zero for the baseline, one and up for the regulators in the order in which they come."""
    names = dict.fromkeys(arm.regulator for group in groups for arm in group.arms if arm.regulator != baseline)
    return {baseline: 0, **{name: number for number, name in enumerate(names, start=1)}}


def short(value: Any) -> float | None:
    """A number with five digits, or None for what is none.

    >>> short(0.1234567), short(None), short(float("nan"))
    (0.12346, None, None)
    """
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")


def seconds(arm: Arm) -> list[float]:
    """Seconds of every round of the counted runs."""
    return numbers(arm, "seconds")


def numbers(arm: Arm, key: str) -> list[float]:
    """What every round of the counted runs has under ``key``, where it is a number."""
    found = (row.get(key) for run in arm.counted for row in run.rounds)
    return [float(value) for value in found if isinstance(value, (int, float)) and math.isfinite(value)]


def quartiles(values: Sequence[float]) -> dict[str, float | None]:
    """Five numbers for a box."""
    points = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])
    return dict(zip(("low", "q1", "median", "q3", "high"), map(short, points.tolist()), strict=True))


def _curves(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "seed": run.seed,
        "state": run.state,
        "rounds": [row["round"] for row in run.rounds],
        **{name: [short(row.get(name)) for row in run.rounds] for name in CURVES},
    }


def _pairs(comparison: Comparison, colours: Mapping[str, int]) -> list[dict[str, Any]]:
    """Differences of the primary metric in percentage points."""

    def points(value: float | None) -> float | None:
        return None if value is None else short(100 * value)

    return [
        {
            "label": ", ".join(part for part in (pair.setting, pair.algorithm, pair.regulator) if part),
            "colour": colours.get(pair.regulator, 1),
            "verdict": pair.verdict,
            "seeds": list(pair.seeds),
            "differences": [points(value) for value in pair.primary.differences],
            "mean": points(pair.primary.mean),
            "interval": None if pair.primary.interval is None else [points(end) for end in pair.primary.interval],
        }
        for pair in comparison.pairs
        if pair.primary.mean is not None
    ]


def _steps(groups: Sequence[Group], kept: Mapping[int, list[Kept]]) -> list[dict[str, Any]]:
    """The maps of every run that kept steps: first one run of every arm, then the others."""
    found = [
        (place, number, run)
        for number, group in enumerate(groups)
        for arm in group.arms
        for place, run in enumerate(run for run in arm.runs if kept[id(run)])
    ]
    runs = [(number, run) for _, number, run in sorted(found, key=lambda entry: entry[:2])]
    maps = step_maps({str(index): kept[id(run)] for index, (_, run) in enumerate(runs)})
    return [
        {"name": run.name, "group": number, "label": _choice(groups[number], run), "clients": maps[str(index)]}
        for index, (number, run) in enumerate(runs)
        if str(index) in maps
    ]


def _choice(group: Group, run: Run) -> str:
    return f"{group.label}, {run.regulator}, seed {run.seed}"


def _federations(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Each way in which the data were dealt out, once, named by the seeds and settings that share it."""
    found: dict[str, tuple[dict[str, Any], dict[str, None]]] = {}
    for group in groups:
        for arm in group.arms:
            for run in arm.runs:
                counts, classes = run.record.manifest.get("partition"), run.record.manifest.get("classes", [])
                if counts:
                    federation = {"classes": [str(name) for name in classes], "counts": counts}
                    label = ", ".join(part for part in (f"seed {run.seed}", run.setting) if part)
                    found.setdefault(repr(federation), (federation, {}))[1][label] = None
    return [
        {"label": "; ".join(labels), **federation} for federation, labels in list(found.values())[:MOST_FEDERATIONS]
    ]


def _diagnostics(group: Group, colours: Mapping[str, int]) -> list[dict[str, Any]]:
    """Each diagnostic number of a group: by arm, the mean over clients and runs, and the range over runs."""
    series = {arm.regulator: [_by_round(run) for run in arm.counted] for arm in group.arms}
    names = dict.fromkeys(name for runs in series.values() for run in runs for row in run.values() for name in row)
    return [
        {
            "name": name,
            "about": FIRST.get(name, ""),
            "arms": [
                {"label": arm, "colour": colours[arm], **curve}
                for arm, runs in series.items()
                if (curve := _over_runs(runs, name))["rounds"]
            ],
        }
        for name in sorted(names, key=lambda name: (list(FIRST).index(name) if name in FIRST else len(FIRST), name))
    ]


def _by_round(run: Run) -> dict[int, dict[str, float]]:
    """The round's own diagnostics, and the means over clients of theirs."""
    found: dict[int, dict[str, float]] = {}
    for row in run.rounds:
        values: dict[str, list[float]] = {}
        for holder in (row, *row.get("clients", [])):
            for name, value in _numbers(holder.get("diagnostics")):
                values.setdefault(name, []).append(value)
        if values:
            found[row["round"]] = {name: fmean(each) for name, each in values.items()}
    return found


def _numbers(diagnostics: Any) -> Iterable[tuple[str, float]]:
    if isinstance(diagnostics, Mapping):
        for name, value in diagnostics.items():
            if isinstance(value, (bool, int, float)) and math.isfinite(value):
                yield str(name), float(value)


def _over_runs(runs: Sequence[Mapping[int, Mapping[str, float]]], name: str) -> Series:
    """Mean and range over runs, round by round, where the number is known."""
    rounds = sorted({number for run in runs for number in run})
    known = {number: [run[number][name] for run in runs if name in run.get(number, {})] for number in rounds}
    known = {number: values for number, values in known.items() if values}
    return {
        "rounds": list(known),
        "mean": [short(fmean(values)) for values in known.values()],
        "low": [short(min(values)) for values in known.values()],
        "high": [short(max(values)) for values in known.values()],
    }
