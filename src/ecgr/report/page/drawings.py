"""Everything that a report draws, as one JSON-able dict; pure, from runs and their comparison.

Numbers are shortened to five digits, except that which steps were kept is exact (see `step_maps`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ecgr.analysis.arms import Arm, Group
from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import Comparison
from ecgr.analysis.quantities import Quantity
from ecgr.report.page.lengths import length_pictures
from ecgr.report.page.numbers import axis_title, short, shown_as
from ecgr.report.page.step_maps import step_maps
from ecgr.simulation.kept import Kept

MOST_FEDERATIONS = 20


class HasArms(Protocol):
    """A group, or a panel of a figure."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """What is drawn together."""


def page_data(groups: Sequence[Group], comparison: Comparison) -> dict[str, Any]:
    """What the page's scripts read."""
    colours = colour_numbers(groups, comparison.baseline)
    kept = {id(run): run.record.kept() for group in groups for arm in group.arms for run in arm.runs}
    return {
        "groups": [_group(group, colours) for group in groups],
        "lengths": length_pictures(comparison),
        "steps": _steps(groups, kept),
        "federations": _federations(groups),
    }


def colour_numbers(groups: Sequence[HasArms], baseline: str) -> dict[str, int]:
    """Zero for the baseline, one and up for the others in the order in which they come."""
    names = dict.fromkeys(arm.name for group in groups for arm in group.arms if arm.name != baseline)
    return {baseline: 0, **{name: number for number, name in enumerate(names, start=1)}}


def _group(group: Group, colours: Mapping[str, int]) -> dict[str, Any]:
    quantity = group.arms[0].runs[0].summary.metric
    return {
        "label": group.label,
        "metric": axis_title(quantity),
        "digits": ".2f" if quantity.is_share else ".4~g",
        "arms": [
            {"label": arm.method, "colour": colours[arm.name], "runs": [_curves(run, quantity) for run in arm.runs]}
            for arm in group.arms
        ],
    }


def _curves(run: Run, quantity: Quantity) -> dict[str, Any]:
    return {
        "name": run.name,
        "seed": run.summary.seed,
        "state": run.state,
        "rounds": [row["round"] for row in run.rounds],
        "metric": [shown_as(quantity, value) for value in run.summary.values],
        "loss": [short(row.get("loss")) for row in run.rounds],
    }


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
    return ", ".join(part for part in (group.setting, run.summary.method, f"seed {run.summary.seed}") if part)


def _federations(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Each way in which the data were dealt out, once, named by the seeds and settings that share it."""
    found: dict[str, tuple[dict[str, Any], dict[str, None]]] = {}
    for group in groups:
        for arm in group.arms:
            for run in arm.runs:
                counts, classes = run.record.manifest.get("partition"), run.record.manifest.get("classes", [])
                if counts and any(map(sum, counts)):
                    federation = {"classes": [str(name) for name in classes], "counts": counts}
                    label = ", ".join(part for part in (f"seed {run.summary.seed}", run.summary.setting) if part)
                    found.setdefault(repr(federation), (federation, {}))[1][label] = None
    return [
        {"label": "; ".join(labels), **federation} for federation, labels in list(found.values())[:MOST_FEDERATIONS]
    ]
