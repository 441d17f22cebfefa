"""Everything that a page says in words and tables: the answer, warnings, what was run, with what, and what it cost.

Pure and plain: strings and lists for a template that escapes them. No name is trusted. Clocks of different runs are
never compared: they measure what else a machine was doing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.heterogeneity import of_counts
from ecgr.analysis.quantities import count
from ecgr.analysis.records import MethodRuns, Run, flat, varying_keys
from ecgr.files import to_toml
from ecgr.report.table import Cell, Table, Value, results_table, table, tuning_table
from ecgr.report.words import advice, best_first, cautions, details, listed, promised, sentence, worth

NAMED = 6
"""Runs named in a warning before the rest are only counted."""
UNFINISHED = {
    "still going": "not counted",
    "interrupted": "not counted",
    "diverged": "and their method is called diverged",
}
"""What becomes of runs that are not finished."""
MOST_REJECTED = 200
"""Lines of rejected updates that are listed; the rest are counted."""


def page_text(groups: Mapping[str, Sequence[MethodRuns]], comparison: Comparison) -> dict[str, Any]:
    """What the template prints."""
    runs = comparison.runs
    methods = [own for each in groups.values() for own in each]
    compared = any(pair.difference is not None or pair.verdict == "diverged" for pair in comparison.pairs)
    return {
        "heading": "Which method to use" if compared else "What was run",
        "names": join_values(run.record.manifest.get("name") for run in runs),
        "facts": _facts(runs, comparison),
        "lead": advice(comparison) if compared else "",
        "comparison": results_table(comparison) if compared else None,
        "worth": [*worth(comparison), *heterogeneity_lines(runs)],
        "references": bool(comparison.references),
        "cautions": cautions(comparison) if compared else [],
        "instead": [] if compared else _instead(methods, comparison.baseline),
        "warnings": warnings(runs),
        "tuning": tuning_table(comparison),
        "sentences": [
            {"text": sentence(pair), "details": details(pair, comparison.family)}
            for pair in best_first(comparison.pairs if compared else ())
        ],
        "curves": any(run.rounds for run in runs),
        "cost": cost_table(methods),
        "differing": varying_settings(runs),
        "configs": config_texts(methods),
        "runs": run_table(runs),
        "hashes": data_hashes(runs),
        "made_with": _counted(_made_with(run.record.manifest) for run in runs),
        "notes": _counted(str(note) for run in runs for note in run.record.manifest.get("notes", [])),
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
    for state, meaning in UNFINISHED.items():
        found = [f"{run.name}, {len(run.rounds)} of {run.planned} rounds" for run in runs if run.state == state]
        if found:
            more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
            are = "run is" if len(found) == 1 else "runs are"
            lines.append(
                f"{len(found)} {are} {state} ({'; '.join(found[:NAMED])}{more}). Drawn in the curves, {meaning}."
            )
    return lines


def heterogeneity_lines(runs: Sequence[Run]) -> list[str]:
    """How heterogeneous the clients of the first seed are."""
    for run in sorted(runs, key=lambda run: run.summary.seed):
        if found := of_counts(run.record.manifest.get("partition") or [[]]):
            return [f"The clients (seed {run.summary.seed}): {'; '.join(each.sentence for each in found)}."]
    return []


def _instead(methods: Sequence[MethodRuns], baseline: str) -> list[str]:
    """What can be said without a pair: how each method ended, and what is missing for an answer."""
    lines = [_ending(own) for own in methods]
    if not any(run.state == "finished" for own in methods for run in own.runs):
        return [*lines, "No run is finished, so nothing is compared yet."]
    others = any(own.method != baseline for own in methods)
    missing = f"finished baseline ({baseline})" if others else "method besides the baseline"
    return [
        *lines,
        f"There is no {missing} to compare with, so this page cannot say whether it helped;"
        " `ecgr compare` makes paired runs.",
    ]


def _ending(own: MethodRuns) -> str:
    runs = [run for run in own.counted if run.rounds]
    ends = [end for run in runs if (end := run.summary.end) is not None]
    if not ends:
        return f"{own.label}: {'no finite number at the end' if runs else 'no round yet'}."
    metric, rounds = runs[0].summary.metric, max(len(run.rounds) for run in runs)
    spread = f" ({metric.number(min(ends))} to {metric.number(max(ends))})" if len(ends) > 1 else ""
    private = f", {promised(privacy)}" if (privacy := runs[0].summary.privacy) else ""
    verb = "ended" if runs[0].state == "finished" else "stands"
    return (
        f"{own.label}: {verb} at {metric.level(fmean(ends))}{spread}, {metric.words}"
        f" after {count(rounds, 'round')}, {listed([run.summary.seed for run in runs])}{private}."
    )


def _facts(runs: Sequence[Run], comparison: Comparison) -> list[str]:
    configs = [run.record.config for run in runs]

    def values(section: str, key: str) -> str:
        return join_values(config.get(section, {}).get(key) for config in configs)

    facts = [
        count(len(runs), "run"),
        values("data", "name"),
        f"{clients} clients" if (clients := values("partition", "clients")) else "",
        f"{values('federation', 'rounds')} rounds",
        _seeds({run.summary.seed for run in runs}),
        "tuned" if comparison.tuned else "not tuned",
        _rates(comparison.rates()),
    ]
    return [fact for fact in facts if fact]


def _rates(rates: Mapping[str, float]) -> str:
    if len(set(rates.values())) < 2:
        return f"learning rate {join_values(rates.values())}" if rates else ""
    return f"learning rates {', '.join(f'{rate:.2g} ({method})' for method, rate in rates.items())}"


def _seeds(seeds: set[int]) -> str:
    """Seeds in a row as their ends."""
    low, high = min(seeds), max(seeds)
    return f"seeds {low} to {high}" if len(seeds) > 2 and high - low + 1 == len(seeds) else listed(sorted(seeds))


def varying_settings(runs: Sequence[Run]) -> Table | None:
    """The settings that are not the same in all runs, tuned ones too, and which methods have which value."""
    configs = [(run.summary.method, flat(run.record.config)) for run in runs]
    rows = []
    for key in varying_keys([config for _, config in configs]):
        methods: dict[str, dict[str, None]] = {}
        for method, config in configs:
            if key in config:
                methods.setdefault(str(config[key]), {})[method] = None
        rows.append([key, "; ".join(f"{value} ({', '.join(own)})" for value, own in methods.items())])
    return table("Settings that differ between runs, the seed apart", ["setting", "values"], rows) if rows else None


def config_texts(methods: Sequence[MethodRuns]) -> list[dict[str, str]]:
    """The config of every method, as TOML that can be saved and run again: of its first run where it has several."""
    texts = []
    for own in methods:
        seeds = join_values(run.summary.seed for run in own.runs)
        keys = join_values(run.record.key for run in own.runs)
        others = f"# one run for each of the seeds {seeds}\n" if len(own.runs) > 1 else ""
        texts.append(
            {
                "label": own.label,
                "about": f"{count(len(own.runs), 'run')}, seed {seeds}, key {keys}",
                "text": others + to_toml(own.runs[0].record.config).rstrip(),
            }
        )
    return texts


def run_table(runs: Sequence[Run]) -> Table:
    """One line a run: what it is and how far it got."""
    names = join_values(run.summary.metric.words for run in runs)
    return table(
        "The runs",
        ["run", "setting?", "method", "seed#", "state", "rounds#", f"last {names}#", "made, UTC"],
        [
            [
                run.name,
                run.summary.setting,
                run.summary.method,
                run.summary.seed,
                run.state,
                Cell(f"{len(run.rounds)} of {run.planned}", len(run.rounds)),
                Cell("-" if last is None else run.summary.metric.level(last), last),
                str(run.record.manifest.get("created", "-")).replace("T", " ").removesuffix("+00:00"),
            ]
            for run in runs
            for last in [run.summary.values[-1] if run.rounds else None]
        ],
    )


def data_hashes(runs: Sequence[Run]) -> Table | None:
    """The SHA-256 of every data file that was read, each once."""
    files = ((str(name), str(digest)) for run in runs for name, digest in run.record.manifest.get("data", {}).items())
    rows: list[list[Value]] = [[name, digest, times] for (name, digest), times in Counter(files).items()]
    return table("Data files and their SHA-256", ["file", "sha256", "runs#"], rows) if rows else None


def rejections(runs: Sequence[Run]) -> Table | None:
    """Updates that were not used, and why."""
    rows: list[list[Value]] = [
        [run.name, row["round"], str(entry.get("client")), str(entry.get("reason"))]
        for run in runs
        for row in run.rounds
        for entry in row.get("rejected", [])
    ]
    if not rows:
        return None
    more = f"; the first {MOST_REJECTED} are listed" if len(rows) > MOST_REJECTED else ""
    caption = f"Rejected updates: {len(rows)}{more}"
    return table(caption, ["run", "round#", "client", "reason"], rows[:MOST_REJECTED])


def _counted(texts: Iterable[str]) -> list[str]:
    return [f"{text} ({count(runs, 'run')})" for text, runs in Counter(texts).items()]


def _made_with(manifest: Mapping[str, Any]) -> str:
    machine = manifest.get("machine", {})
    versions = {**manifest.get("versions", {}), **({"python": machine["python"]} if "python" in machine else {})}
    place = " ".join(str(machine[key]) for key in ("system", "processor") if key in machine)
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    return ", ".join(filter(None, [*(f"{name} {number}" for name, number in versions.items()), place, cores]))


def cost_table(methods: Sequence[MethodRuns]) -> Table | None:
    """One row a method; columns of which nothing is known are left out, and the table if that leaves none."""
    costs = [_costs(own) for own in methods]
    known = [label for label in costs[0] if any(cost[label].value is not None for cost in costs)]
    if not known:
        return None
    return table(
        "Medians over rounds and seeds; memory is the most of any client",
        ["method", *(f"{label}#" for label in known)],
        [[own.label, *(cost[label] for label in known)] for own, cost in zip(methods, costs, strict=True)],
    )


def _costs(own: MethodRuns) -> dict[str, Cell]:
    rounds = [row for run in own.counted for row in run.rounds]
    clients = [client for row in rounds for client in row.get("clients", [])]
    up, down, memory = _known(rounds, "bytes_up"), _known(rounds, "bytes_down"), _known(clients, "steps_memory")
    numbers = {
        "bytes up": median(up) if up else None,
        "bytes down": median(down) if down else None,
        "upload of a run": sum(up) / len(own.counted) if up else None,
        "memory for steps": max(memory, default=None),
    }
    both = [row for row in clients if _known([row], "regulation_seconds") and _known([row], "seconds")]
    whole = sum(row["seconds"] for row in both)  # recording and regulating as a share of what the same clients took
    share = sum(row["regulation_seconds"] for row in both) / whole if whole else None
    return {
        **{label: Cell(bytes_text(value), value) for label, value in numbers.items()},
        "share of the clients' time": Cell("-" if share is None else f"{100 * share:.1f} %", share),
    }


def _known(rows: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    values = (row.get(key) for row in rows)
    return [float(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)]


def join_values(values: Iterable[Any]) -> str:
    """Different values in a row, numbers in order.

    >>> join_values([2, 0, 2, 1]), join_values(["digits", None])
    ('0, 1, 2', 'digits')
    """
    found = [value for value in dict.fromkeys(values) if value is not None and value != ""]
    if all(isinstance(value, (int, float)) for value in found):
        found.sort()
    return ", ".join(map(str, found))


def bytes_text(value: float | None) -> str:
    """Bytes for people.

    >>> bytes_text(2_468_240), bytes_text(512)
    ('2.47 MB', '512 B')
    """
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"
