"""Everything that a page draws, as one JSON-able dict; pure, from runs and their comparison.

Numbers are shortened to five digits; which steps were kept is exact.
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.quantities import Quantity
from ecgr.analysis.records import MethodRuns, Run
from ecgr.analysis.summaries import mean_or_none
from ecgr.simulation.kept import Kept

RATE = "optimizer.lr"
MOST_FEDERATIONS = 20
BUDGET = 500_000
"""Bytes, before base64, for the maps of all runs together; what does not fit is left out."""

Entries = Sequence[Kept]


def page_data(groups: Mapping[str, Sequence[MethodRuns]], comparison: Comparison) -> dict[str, Any]:
    """What the page's scripts read."""
    methods = [own for each in groups.values() for own in each]
    colours = colour_numbers((own.method for own in methods), comparison.baseline)
    return {
        "groups": [_group(own, colours, arrivals(comparison, setting)) for setting, own in groups.items()],
        "trials": _trials(comparison, colours),
        "steps": _steps(groups),
        "federations": _federations(run for own in methods for run in own.runs),
    }


def colour_numbers(methods: Iterable[str], baseline: str) -> dict[str, int]:
    """Zero for the baseline, one and up for the others in the order in which they come."""
    return {method: number for number, method in enumerate(dict.fromkeys([baseline, *methods]))}


def arrivals(comparison: Comparison, setting: str) -> dict[str, tuple[float, float]]:
    """For each method of a setting the mean round in which it gets to the baseline's end, and that end as it is shown.

    Only where all but a few seeds do; a method that has no factor has no such round.
    """
    found: dict[str, tuple[float, float]] = {}
    for pair in comparison.pairs:
        if pair.setting == setting and pair.speed is not None and pair.speed.log is not None:
            target = pair.metric.scale * pair.speed.target
            found[pair.method], found[comparison.baseline] = ((number, target) for number in pair.speed.rounds)
    return found


def axis_title(quantity: Quantity) -> str:
    """The primary metric as an axis names it.

    >>> axis_title(Quantity("balanced_accuracy", "share")), axis_title(Quantity("mae", "years", larger_is_better=False))
    ('test balanced accuracy, %', 'test mae, years')
    """
    unit = "%" if quantity.is_share else quantity.unit
    return ", ".join(filter(None, (f"test {quantity.words}", unit)))


def _group(
    methods: Sequence[MethodRuns], colours: Mapping[str, int], arrived: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    metric = methods[0].runs[0].summary.metric
    return {
        "label": methods[0].setting,
        "metric": axis_title(metric),
        "digits": ".1f" if metric.is_share else ".4~g",
        "methods": [
            {
                "label": own.method,
                "colour": colours[own.method],
                "arrives": [_short(number) for number in arrived[own.method]] if own.method in arrived else None,
                "runs": [
                    {
                        "name": run.name,
                        "seed": run.summary.seed,
                        "state": run.state,
                        "rounds": [row["round"] for row in run.rounds],
                        "metric": [_short(value, metric.scale) for value in run.summary.values],
                        "loss": [_short(row.get("loss")) for row in run.rounds],
                    }
                    for run in own.runs
                ],
            }
            for own in methods
        ],
    }


def _trials(comparison: Comparison, colours: Mapping[str, int]) -> dict[str, Any] | None:
    """Every trial of tuning: its learning rate, its score after the first stage (None if it failed), if it was chosen.

    None where no learning rate was tuned.
    """
    dots = {
        method: [
            (trial["values"][RATE], mean_or_none(list(trial["scores"][0].values())), trial["values"] == own["chosen"])
            for trial in own["trials"]
            if trial["values"].get(RATE, 0) > 0 and trial["scores"]
        ]
        for method, own in comparison.tuning.items()
    }
    if not comparison.pairs or all(score is None for own in dots.values() for _, score, _ in own):
        return None
    metric = comparison.pairs[0].metric
    return {
        "metric": axis_title(metric).removeprefix("test "),
        "larger_is_better": metric.larger_is_better,
        "methods": [
            {
                "label": method,
                "colour": colours.get(method, -1),
                "dots": [[_short(rate), _short(score, metric.scale), chosen] for rate, score, chosen in own],
            }
            for method, own in dots.items()
        ],
    }


def _steps(groups: Mapping[str, Sequence[MethodRuns]]) -> list[dict[str, Any]]:
    """The maps of every run that kept steps: first one run of every method, then the others."""
    found: list[tuple[int, int, Run, Entries]] = []
    for number, methods in enumerate(groups.values()):
        for own in methods:
            kept = [(run, entries) for run in own.runs if (entries := run.record.kept())]
            found += [(place, number, *each) for place, each in enumerate(kept)]
    found.sort(key=lambda each: each[:2])
    maps = step_maps([entries for *_, entries in found])
    return [
        {
            "name": run.name,
            "group": number,
            "label": ", ".join(filter(None, (run.summary.setting, run.summary.method, f"seed {run.summary.seed}"))),
            "clients": own,
        }
        for (_, number, run, _), own in zip(found, maps, strict=True)
        if own
    ]


def _federations(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Each partition of the data, once, named by the seeds and settings that share it."""
    found: dict[str, tuple[dict[str, Any], dict[str, None]]] = {}
    for run in runs:
        counts, classes = run.record.manifest.get("partition"), run.record.manifest.get("classes", [])
        if counts and any(map(sum, counts)):
            federation = {"classes": [str(name) for name in classes], "counts": counts}
            label = ", ".join(filter(None, (f"seed {run.summary.seed}", run.summary.setting)))
            found.setdefault(repr(federation), (federation, {}))[1][label] = None
    return [
        {"label": "; ".join(labels), **federation} for federation, labels in list(found.values())[:MOST_FEDERATIONS]
    ]


def _short(value: Any, scale: float = 1.0) -> float | None:
    """Five digits, or None for what is not a finite number."""
    return float(f"{scale * value:.5g}") if isinstance(value, (int, float)) and math.isfinite(value) else None


def step_maps(runs: Sequence[Entries], budget: int = BUDGET) -> list[list[dict[str, Any]]]:
    """For each run the maps of its clients, one after another until the budget is spent.

    A map is packed bits: a row for each round in which the client took part, a column for each step, 1 if it was kept.

    >>> ((own,),) = step_maps([[Kept(round=1, client=0, steps=4, kept=(3, 2))]])
    >>> own["columns"], base64.b64decode(own["data"])
    (4, b'0')
    """
    found = []
    for entries in runs:
        maps: list[dict[str, Any]] = []
        for client, own in by_client(entries).items():
            kept = kept_array(own)
            data = np.packbits(kept == 1).tobytes()
            budget -= len(data)
            if budget >= 0:
                maps.append(
                    {
                        "client": client,
                        "steps": [entry.steps for entry in own],
                        "rounds": [entry.round for entry in own],
                        "columns": kept.shape[1],
                        "data": base64.b64encode(data).decode(),
                    }
                )
        found.append(maps)
    return found


def kept_array(entries: Entries) -> NDArray[np.float64]:
    """One client's map, rows by round and columns by step: 1 kept, 0 not kept, NaN where there was no step."""
    width = max((entry.steps for entry in entries), default=0)
    array = np.full((len(entries), width), np.nan)
    for row, entry in zip(array, entries, strict=True):
        row[: entry.steps] = 0.0
        row[list(entry.kept)] = 1.0
    return array


def by_client(entries: Entries) -> dict[int, list[Kept]]:
    """Each client's entries by round."""
    clients: dict[int, list[Kept]] = {}
    for entry in sorted(entries):
        clients.setdefault(entry.client, []).append(entry)
    return dict(sorted(clients.items()))
