"""Everything that a report says in words and tables: the answer, warnings, numbers behind it, what was run.

Pure and plain: strings and lists for a template that escapes them. No name is trusted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ecgr.analysis.arms import Arm, Group
from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import LEVEL, Comparison, Pair
from ecgr.analysis.metrics import METRICS, PRIMARY, last5
from ecgr.analysis.quantities import Quantity
from ecgr.report.page.answers import answers, verdict_class, verdict_text
from ecgr.report.page.cost import cost_table
from ecgr.report.page.facts import config_texts, data_hashes, made_with, notes, rejections, run_table, varying_settings
from ecgr.report.page.lengths import length_table
from ecgr.report.page.numbers import format_or_dash, join_values
from ecgr.report.page.tables import Cell, Table, table
from ecgr.report.sentences import answer, best_first

NAMED = 6
"""Runs named in a warning before the rest are only counted."""
UNFINISHED = {
    "still going": "not counted",
    "interrupted": "not counted",
    "diverged": "and counted as ones without an end",
}
"""What becomes of runs that are not finished."""


def page_text(runs: Sequence[Run], groups: Sequence[Group], comparison: Comparison) -> dict[str, Any]:
    """What the template prints."""
    compared = any(pair.primary.mean is not None or pair.verdict == "diverged" for pair in comparison.pairs)
    return {
        "heading": "Did it help?" if compared else "What was run",
        "names": join_values(run.record.manifest.get("name") for run in runs),
        "facts": _facts(runs),
        "lead": answer(comparison) if compared and len(comparison.pairs) > 1 else "",
        "answers": answers(comparison),
        "instead": [] if compared else _instead(groups, comparison.baseline),
        "warnings": warnings(runs),
        "comparison": comparison_table(comparison),
        "others": other_metrics_table(comparison),
        "lengths": length_table(comparison),
        "curves": any(run.rounds for run in runs),
        "groups": [
            {"label": group.label or "All methods", "metric": _metric_ends(group), "loss": _loss_ends(group)}
            for group in groups
        ],
        "cost": cost_table(groups),
        "differing": varying_settings(runs),
        "configs": config_texts(groups),
        "runs": run_table(runs),
        "hashes": data_hashes(runs),
        "made_with": made_with(runs),
        "notes": notes(runs),
        "rejected": rejections(runs),
    }


def warnings(runs: Sequence[Run]) -> list[str]:
    """What a reader should know before reading on."""
    lines = []
    sets = dict.fromkeys(str(run.record.config.get("data", {}).get("name")) for run in runs)
    if len(sets) > 1:
        lines.append(
            f"These runs are of different data sets ({', '.join(sets)}). They are grouped by setting, and nothing is"
            " compared across groups."
        )
    if differ := _differing_files(runs):
        lines.append(f"The files of {', '.join(differ)} are not the same in all runs: their contents differ.")
    versions = dict.fromkeys(str(run.record.manifest.get("versions", {}).get("ecgr")) for run in runs)
    if len(versions) > 1:
        lines.append(f"The runs were made by different versions of ecgr ({', '.join(versions)}).")
    for state, meaning in UNFINISHED.items():
        found = [f"{run.name}, {len(run.rounds)} of {run.planned} rounds" for run in runs if run.state == state]
        if found:
            more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
            are = "run is" if len(found) == 1 else "runs are"
            lines.append(
                f"{len(found)} {are} {state} ({'; '.join(found[:NAMED])}{more}). Drawn in the curves, {meaning}."
            )
    return lines


def comparison_table(comparison: Comparison) -> Table | None:
    """The primary metric of every pair, best first."""
    if not comparison.pairs:
        return None
    pairs = best_first(comparison.pairs)
    several, lengths = _several(pairs), any(_length(pair) is not None for pair in pairs)
    return table(
        _caption(pairs),
        [
            *("method", *(["setting"] if several else []), "seeds#", "baseline#", "with it#", "difference#"),
            *(f"{100 * LEVEL:g} % interval#", "p, Holm#", "d_z#", *(["length#"] if lengths else []), "verdict"),
        ],
        [_pair_row(pair, several, lengths) for pair in pairs],
    )


def other_metrics_table(comparison: Comparison) -> Table | None:
    """Differences in the metrics that describe and do not decide."""
    if not comparison.pairs:
        return None
    pairs = best_first(comparison.pairs)
    several = _several(pairs)
    others = {name: metric for name, metric in METRICS.items() if name != PRIMARY}
    return table(
        "Other readings of the same curves: difference to the baseline; they describe and get no verdict",
        [
            *("method", *(["setting"] if several else [])),
            *(name.replace("_", " ") + (" (optimistic)" if m.optimistic else "") + "#" for name, m in others.items()),
        ],
        [
            [
                *_names(pair, several),
                *(
                    Cell(metric.change(pair.metric, mean), mean)
                    for name, metric in others.items()
                    for mean in [pair.estimates[name].mean]
                ),
            ]
            for pair in pairs
        ],
    )


def _caption(pairs: Sequence[Pair]) -> str:
    """What the columns are of; metrics that differ are each named."""
    described = dict.fromkeys(
        f"{pair.description.capitalize()}{_unit(pair.metric)} ({pair.metric.direction})" for pair in pairs
    )
    lengths = any(_length(pair) is not None for pair in pairs)
    more = "; length: of all server steps, in units of the baseline's" if lengths else ""
    return "; ".join(described) + more


def _unit(quantity: Quantity) -> str:
    if quantity.is_share:
        return ", in percent and percentage points"
    return f", in {quantity.unit}" if quantity.unit else ""


def _pair_row(pair: Pair, several: bool, lengths: bool) -> list[Cell]:
    found, metric = pair.primary, pair.metric
    length = _length(pair)
    return [
        *_names(pair, several),
        Cell(str(len(pair.seeds)), len(pair.seeds)),
        Cell(metric.number(found.baseline_mean), found.baseline_mean),
        Cell(metric.number(found.regulated_mean), found.regulated_mean),
        Cell(metric.change(found.mean), found.mean),
        _interval(pair),
        Cell(format_or_dash(found.p_holm, ".3g"), found.p_holm),
        Cell(format_or_dash(found.dz, "+z.2f"), found.dz),
        *([Cell(format_or_dash(length, ".2f"), length)] if lengths else []),
        Cell(verdict_text(pair), style=verdict_class(pair)),
    ]


def _interval(pair: Pair) -> Cell:
    interval = pair.primary.interval
    return Cell("-") if interval is None else Cell(" to ".join(map(pair.metric.change, interval)), interval[0])


def _length(pair: Pair) -> float | None:
    return None if pair.split is None else pair.split.ratio


def _several(pairs: Sequence[Pair]) -> bool:
    return len({pair.setting for pair in pairs}) > 1


def _names(pair: Pair, several: bool) -> list[Cell]:
    return [Cell(pair.method), *([Cell(pair.setting)] if several else [])]


def _instead(groups: Sequence[Group], baseline: str) -> list[str]:
    """What can be said without a pair: how each arm ended, and what is missing for an answer."""
    lines = [line for group in groups for arm in group.arms for line in _endings(arm)]
    arms = [arm for group in groups for arm in group.arms]
    if not any(run.state == "finished" for arm in arms for run in arm.runs):
        return [*lines, "No run is finished, so nothing is compared yet."]
    others = any(arm.name != baseline for arm in arms)
    missing = f"finished baseline ({baseline})" if others else "method besides the baseline"
    return [
        *lines,
        f"There is no {missing} to compare with, so this page cannot say whether it helped;"
        " `ecgr compare` makes paired runs.",
    ]


def _endings(arm: Arm) -> Iterable[str]:
    runs = [run for run in arm.counted if run.rounds]
    ends = [end for run in runs if (end := last5(run.summary)) is not None]
    if not ends:
        yield f"{arm.label}: no round yet." if not runs else f"{arm.label}: no finite number at the end."
        return
    quantity, rounds = runs[0].summary.metric, max(len(run.rounds) for run in runs)
    seeds = f"seed{'s' if len(runs) > 1 else ''} {', '.join(str(run.summary.seed) for run in runs)}"
    spread = f" ({quantity.number(min(ends))} to {quantity.number(max(ends))})" if len(ends) > 1 else ""
    verb = "ended" if runs[0].state == "finished" else "stands"
    yield (
        f"{arm.label}: {verb} at {quantity.level(sum(ends) / len(ends))}{spread},"
        f" {METRICS[PRIMARY].describe(quantity, rounds)},"
        f" after {rounds} {'round' if rounds == 1 else 'rounds'}, {seeds}."
    )


def _metric_ends(group: Group) -> str:
    """An alternative text for a plot: where each arm's curve ends."""
    quantity = group.arms[0].runs[0].summary.metric
    ends = {
        arm.name: [v for run in arm.counted if run.rounds for v in run.summary.values[-1:] if v is not None]
        for arm in group.arms
    }
    ended = [f"{name} ends at {quantity.level(sum(values) / len(values))}" for name, values in ends.items() if values]
    return f"{quantity.name} over rounds, {group.label}: {', '.join(ended) or 'no round yet'}"


def _loss_ends(group: Group) -> str:
    ends = {
        arm.name: [v for run in arm.counted if run.rounds for v in [run.rounds[-1].get("loss")] if v is not None]
        for arm in group.arms
    }
    ended = [f"{name} ends at {sum(values) / len(values):.3f}" for name, values in ends.items() if values]
    return f"loss over rounds, {group.label}: {', '.join(ended) or 'no round yet'}"


def _facts(runs: Sequence[Run]) -> list[str]:
    configs = [run.record.config for run in runs]

    def values(section: str, key: str) -> str:
        return join_values(config.get(section, {}).get(key) for config in configs)

    facts = [
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}",
        values("data", "name"),
        f"{clients} clients" if (clients := values("partition", "clients")) else "",
        f"{values('federation', 'rounds')} rounds",
        _seeds({run.summary.seed for run in runs}),
    ]
    return [fact for fact in facts if fact]


def _seeds(seeds: set[int]) -> str:
    """Seeds in a row as their ends."""
    low, high = min(seeds), max(seeds)
    if len(seeds) > 2 and high - low + 1 == len(seeds):
        return f"seeds {low} to {high}"
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {join_values(seeds)}"


def _differing_files(runs: Sequence[Run]) -> list[str]:
    seen: dict[str, set[str]] = {}
    for run in runs:
        files: Mapping[str, Any] = run.record.manifest.get("data", {})
        for name, digest in files.items():
            seen.setdefault(name, set()).add(str(digest))
    return [name for name, digests in seen.items() if len(digests) > 1]
