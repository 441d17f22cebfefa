"""Everything that a report says in words and tables: the answer, warnings, numbers behind it, what was run.

Pure and plain: strings and lists for a template that escapes them. No name is trusted.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ecgr.analysis.arms import Arm, Group
from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import LEVEL, Comparison, Pair
from ecgr.analysis.metrics import METRICS, PRIMARY, last5
from ecgr.report.page.facts import (
    config_texts,
    data_hashes,
    join_values,
    made_with,
    notes,
    rejections,
    run_table,
    varying_settings,
)
from ecgr.report.page.tables import Cell, Table, cost_table, points, table
from ecgr.report.sentences import sentence

NAMED = 6
"""Runs named in a warning before the rest are only counted."""


def page_text(runs: Sequence[Run], groups: Sequence[Group], comparison: Comparison) -> dict[str, Any]:
    """What the template prints."""
    compared = any(pair.primary.mean is not None for pair in comparison.pairs)
    return {
        "heading": "Did regulation help?" if compared else "What was run",
        "names": join_values(run.record.manifest.get("name") for run in runs),
        "facts": _facts(runs),
        "answers": [{"sentence": sentence(pair), "verdict": _verdict(pair)} for pair in comparison.pairs],
        "instead": [] if compared else _instead(groups, comparison.baseline),
        "warnings": warnings(runs),
        "comparison": comparison_table(comparison),
        "others": other_metrics_table(comparison),
        "groups": [
            {"label": group.label, "accuracy": _ends(group, "accuracy"), "loss": _ends(group, "loss")}
            for group in groups
        ],
        "cost": cost_table(groups, comparison.baseline),
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
    for state in ("still going", "interrupted"):
        found = [f"{run.name}, {len(run.rounds)} of {run.planned} rounds" for run in runs if run.state == state]
        if found:
            more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
            are = "run is" if len(found) == 1 else "runs are"
            lines.append(
                f"{len(found)} {are} {state} ({'; '.join(found[:NAMED])}{more}). Drawn in the curves, not counted."
            )
    return lines


def comparison_table(comparison: Comparison) -> Table | None:
    """The primary metric of every pair."""
    if not comparison.pairs:
        return None
    several = len({pair.setting for pair in comparison.pairs}) > 1
    interval = f"{100 * LEVEL:g} % interval"
    return table(
        f"{comparison.pairs[0].description.capitalize()}, in percent; differences in percentage points",
        [
            *(["setting"] if several else []),
            *("algorithm", "regulator", "seeds#", f"{comparison.baseline} %#", "regulated %#", "difference#"),
            *(f"{interval}#", "p, Holm#", "d_z#", "verdict"),
        ],
        [_pair_row(pair, several) for pair in comparison.pairs],
    )


def other_metrics_table(comparison: Comparison) -> Table | None:
    """Differences in the metrics that describe and do not decide."""
    if not comparison.pairs:
        return None
    several = len({pair.setting for pair in comparison.pairs}) > 1
    others = {name: metric for name, metric in METRICS.items() if name != PRIMARY}
    return table(
        f"Other metrics: difference to {comparison.baseline}, in points or rounds; they describe and get no verdict",
        [
            *(["setting"] if several else []),
            *("algorithm", "regulator"),
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
            for pair in comparison.pairs
        ],
    )


def _pair_row(pair: Pair, several: bool) -> list[Cell]:
    found = pair.primary
    return [
        *_names(pair, several),
        Cell(str(len(pair.seeds)), len(pair.seeds)),
        Cell(_percent(found.baseline_mean), found.baseline_mean),
        Cell(_percent(found.regulated_mean), found.regulated_mean),
        Cell(points(found.mean), found.mean),
        _interval(found.interval),
        Cell(_number(found.p_holm, ".3g"), found.p_holm),
        Cell(_number(found.dz, "+z.2f"), found.dz),
        Cell(_verdict(pair)),
    ]


def _verdict(pair: Pair) -> str:
    return "nothing to compare" if pair.primary.mean is None else pair.verdict


def _interval(interval: tuple[float, float] | None) -> Cell:
    return Cell("-") if interval is None else Cell(" to ".join(map(points, interval)), interval[0])


def _names(pair: Pair, several: bool) -> list[Cell]:
    return [*([Cell(pair.setting)] if several else []), Cell(pair.algorithm), Cell(pair.regulator)]


def _instead(groups: Sequence[Group], baseline: str) -> list[str]:
    """What can be said without a pair: how each arm ended, and what is missing for an answer."""
    lines = [line for group in groups for arm in group.arms for line in _endings(arm)]
    arms = [arm for group in groups for arm in group.arms]
    if not any(run.state == "finished" for arm in arms for run in arm.runs):
        return [*lines, "No run is finished, so nothing is compared yet."]
    regulated = any(arm.regulator != baseline for arm in arms)
    missing = f"finished baseline ({baseline})" if regulated else "regulated run"
    return [
        *lines,
        f"There is no {missing} to compare with, so this page cannot say whether regulation helped;"
        " `ecgr compare` makes paired runs.",
    ]


def _endings(arm: Arm) -> Iterable[str]:
    runs = [run for run in arm.counted if run.rounds]
    if not runs:
        yield f"{arm.label}: no round yet."
        return
    shares = [end for run in runs if (end := last5(run.summary)) is not None]
    seeds = f"seed{'s' if len(runs) > 1 else ''} {', '.join(str(run.seed) for run in runs)}"
    spread = f" ({_percent(min(shares))} to {_percent(max(shares))})" if len(runs) > 1 else ""
    rounds = max(len(run.rounds) for run in runs)
    verb = "ended" if runs[0].state == "finished" else "stands"
    what = METRICS[PRIMARY].describe(runs[0].summary.metric, rounds)
    yield (
        f"{arm.label}: {verb} at {_percent(sum(shares) / len(shares))} %{spread}, {what},"
        f" after {rounds} {'round' if rounds == 1 else 'rounds'}, {seeds}."
    )


def _ends(group: Group, curve: str) -> str:
    """An alternative text for a plot: where each arm's curve ends."""
    ends = []
    for arm in group.arms:
        values = [v for run in arm.counted if run.rounds for v in [run.rounds[-1].get(curve)] if v is not None]
        if values:
            mean = sum(values) / len(values)
            ends.append(f"{arm.regulator} ends at {_percent(mean) + ' %' if curve == 'accuracy' else f'{mean:.3f}'}")
    return f"{curve} over rounds, {group.label}: {', '.join(ends) or 'no round yet'}"


def _facts(runs: Sequence[Run]) -> list[str]:
    configs = [run.record.config for run in runs]

    def values(section: str, key: str) -> str:
        return join_values(config.get(section, {}).get(key) for config in configs)

    return [
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}",
        values("data", "name"),
        f"{values('partition', 'clients')} clients",
        f"{values('federation', 'rounds')} rounds",
        f"{'seeds' if len({run.seed for run in runs}) > 1 else 'seed'} {values('run', 'seed')}",
    ]


def _differing_files(runs: Sequence[Run]) -> list[str]:
    seen: dict[str, set[str]] = {}
    for run in runs:
        files: Mapping[str, Any] = run.record.manifest.get("data", {})
        for name, digest in files.items():
            seen.setdefault(name, set()).add(str(digest))
    return [name for name, digests in seen.items() if len(digests) > 1]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
