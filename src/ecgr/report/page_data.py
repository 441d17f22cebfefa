"""Everything that a page draws, as one JSON-able dict; pure, from runs and their comparison.

Numbers are shortened to five digits, except that which steps were kept is exact. Its map has a row for each round in
which a client took part and a column for each step. Exact maps are packed bits; where those would be large, cells of a
binned map hold the share of their steps that was kept, as a byte: 0 to 250, or 255 where there is none.
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
"""Bytes, before base64, for the maps of all runs together."""
SIDE = 100
"""Most rows and columns of a binned map; fewer if many maps share the budget."""
LEAST_SIDE = 24
"""Rather than draw maps coarser than this, the last runs are left out."""
LEVELS, ABSENT = 250, 255

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
    """For each method of a setting the mean round in which it gets to what the baseline ends with, and what that is.

    Only where all but a few seeds do; a method that has no factor has no such round.
    """
    found: dict[str, tuple[float, float]] = {}
    for pair in comparison.pairs:
        if pair.setting == setting and pair.speed is not None and pair.speed.log is not None:
            found[pair.method] = (pair.speed.rounds[0], pair.speed.target)
            found[comparison.baseline] = (pair.speed.rounds[1], pair.speed.target)
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
                "arrives": [_short(arrived[own.method][0]), _short(metric.scale * arrived[own.method][1])]
                if own.method in arrived
                else None,
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
        for (_, number, run, _), own in zip(found, maps, strict=False)
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
    """For each run the maps of its clients; exact if all of them fit the budget, else binned, the last left out.

    >>> ((own,),) = step_maps([[Kept(round=1, client=0, steps=4, kept=(3, 2))]])
    >>> own["kind"], base64.b64decode(own["data"])
    ('bits', b'0')
    """
    clients = [by_client(entries) for entries in runs]
    if sum(_exact_bytes(own) for each in clients for own in each.values()) <= budget:
        return [[_exact_map(client, own) for client, own in each.items()] for each in clients]
    while len(clients) > 1 and _side(clients, budget) < LEAST_SIDE:
        clients.pop()
    side = max(1, min(SIDE, _side(clients, budget)))
    return [[_binned_map(client, own, side) for client, own in each.items()] for each in clients]


def kept_array(entries: Entries) -> NDArray[np.float64]:
    """One client's map, rows by round and columns by step: 1 kept, 0 not kept, NaN where there was no step."""
    width = max((entry.steps for entry in entries), default=0)
    array = np.full((len(entries), width), np.nan)
    for row, entry in zip(array, entries, strict=True):
        row[: entry.steps] = 0.0
        row[list(entry.kept)] = 1.0
    return array


def binned_array(array: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """Shares kept in at most ``side`` by ``side`` cells; NaN where a cell holds no step.

    >>> binned_array(np.array([[0.0, 1.0, 1.0, 1.0]]), side=2)
    array([[0.5, 1. ]])
    """
    rows, columns = (min(size, side) for size in array.shape)
    row, column = (np.arange(size) * bins // size for size, bins in zip(array.shape, (rows, columns), strict=True))
    cell = (row[:, None] * columns + column[None, :])[there := ~np.isnan(array)]
    total = np.bincount(cell, minlength=rows * columns).astype(np.float64)
    kept = np.bincount(cell, weights=array[there], minlength=rows * columns)
    shares = np.full(rows * columns, np.nan)
    np.divide(kept, total, out=shares, where=total > 0)
    return shares.reshape(rows, columns)


def _exact_map(client: int, entries: Entries) -> dict[str, Any]:
    bits = np.nan_to_num(kept_array(entries)).astype(bool)
    return {
        "client": client,
        "kind": "bits",
        "steps": [entry.steps for entry in entries],
        "rounds": [entry.round for entry in entries],
        "columns": bits.shape[1],
        "data": base64.b64encode(np.packbits(bits).tobytes()).decode(),
    }


def _binned_map(client: int, entries: Entries, side: int) -> dict[str, Any]:
    array = kept_array(entries)
    shares = binned_array(array, side)
    levels = np.where(np.isnan(shares), ABSENT, np.rint(np.nan_to_num(shares) * LEVELS)).astype(np.uint8)
    starts = [-(-row * len(entries) // len(shares)) for row in range(len(shares))]
    return {
        "client": client,
        "kind": "shares",
        "steps": array.shape[1],
        "rounds": [entries[start].round for start in starts],
        "columns": shares.shape[1],
        "data": base64.b64encode(levels.tobytes()).decode(),
    }


def by_client(entries: Entries) -> dict[int, list[Kept]]:
    """Each client's entries by round."""
    clients: dict[int, list[Kept]] = {}
    for entry in sorted(entries):
        clients.setdefault(entry.client, []).append(entry)
    return dict(sorted(clients.items()))


def _exact_bytes(entries: Entries) -> int:
    return -(-len(entries) * max(entry.steps for entry in entries) // 8)


def _side(clients: Sequence[Mapping[int, Entries]], budget: int) -> int:
    return math.isqrt(budget // sum(map(len, clients)))
