"""What was run, for the end of a report: settings, configs, versions, hashes, notes, rejected updates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ecgr.analysis.arms import Group
from ecgr.analysis.collect import Run
from ecgr.analysis.labels import flat, varying_keys
from ecgr.files import to_toml
from ecgr.report.page.numbers import join_values
from ecgr.report.page.tables import Cell, Table, table

MOST_REJECTED = 200
"""Lines of rejected updates that are listed; the rest are counted."""


def varying_settings(runs: Sequence[Run]) -> Table | None:
    """The settings that are not the same in all runs, tuned ones too, and which methods have which value."""
    configs = [flat(run.record.config) for run in runs]
    rows = [[Cell(key), Cell("; ".join(_holders(key, runs, configs)))] for key in varying_keys(configs)]
    if len(seeds := {run.summary.seed for run in runs}) > 1:
        rows.append([Cell("run.seed"), Cell(join_values(seeds))])
    return table("Settings that differ between runs", ["setting", "values"], rows) if rows else None


def _holders(key: str, runs: Sequence[Run], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each value of a setting with the methods that have it, or the number of runs where a method has several."""
    methods: dict[str, dict[str, None]] = {}
    for run, config in zip(runs, configs, strict=True):
        if key in config:
            methods.setdefault(str(config[key]), {})[run.summary.method] = None
    named = [name for own in methods.values() for name in own]
    if len(set(named)) < len(named):
        return _count(str(config[key]) for config in configs if key in config)
    return [f"{value} ({', '.join(own)})" for value, own in methods.items()]


def config_texts(groups: Sequence[Group]) -> list[dict[str, str]]:
    """The whole config of every arm, as TOML reads, with the seeds of its runs."""
    return [
        {
            "label": arm.label,
            "about": f"{len(arm.runs)} {'run' if len(arm.runs) == 1 else 'runs'},"
            f" seed {join_values(run.summary.seed for run in arm.runs)},"
            f" key {join_values(run.record.key for run in arm.runs)}",
            "text": _toml(arm.runs[0].record.config, seeds=[run.summary.seed for run in arm.runs]),
        }
        for group in groups
        for arm in group.arms
    ]


def run_table(runs: Sequence[Run]) -> Table:
    """One line a run: what it is and how far it got."""
    several = any(run.summary.setting for run in runs)
    names = join_values(run.summary.metric.name.replace("_", " ") for run in runs)
    columns = ("method", "seed#", "state", "rounds#", f"last {names}#", "made, UTC")
    return table(
        "The runs",
        ["run", *(["setting"] if several else []), *columns],
        [
            [
                Cell(run.name),
                *([Cell(run.summary.setting)] if several else []),
                Cell(run.summary.method),
                Cell(str(run.summary.seed), run.summary.seed),
                Cell(run.state),
                Cell(f"{len(run.rounds)} of {run.planned}", len(run.rounds)),
                Cell(run.summary.metric.level(last) if last is not None else "-", last),
                Cell(str(run.record.manifest.get("created", "-")).replace("T", " ").removesuffix("+00:00")),
            ]
            for run in runs
            for last in [run.summary.values[-1] if run.rounds else None]
        ],
    )


def data_hashes(runs: Sequence[Run]) -> Table | None:
    """The SHA-256 of every data file that was read, each once."""
    files = ((str(name), str(digest)) for run in runs for name, digest in run.record.manifest.get("data", {}).items())
    rows = [[Cell(name), Cell(digest), Cell(str(count), count)] for (name, digest), count in Counter(files).items()]
    return table("Data files and their SHA-256", ["file", "sha256", "runs#"], rows) if rows else None


def made_with(runs: Sequence[Run]) -> list[str]:
    """Versions and machines, each combination once with the number of runs."""
    return _count(_made_with(run.record.manifest) for run in runs)


def notes(runs: Sequence[Run]) -> list[str]:
    """What the runs noted about their data, each once with the number of runs."""
    return _count(str(note) for run in runs for note in run.record.manifest.get("notes", []))


def rejections(runs: Sequence[Run]) -> Table | None:
    """Updates that were not used, and why."""
    rows = [
        [
            Cell(run.name),
            Cell(str(row["round"]), row["round"]),
            Cell(str(entry.get("client"))),
            Cell(str(entry.get("reason"))),
        ]
        for run in runs
        for row in run.rounds
        for entry in row.get("rejected", [])
    ]
    if not rows:
        return None
    more = f"; the first {MOST_REJECTED} are listed" if len(rows) > MOST_REJECTED else ""
    caption = f"Rejected updates: {len(rows)}{more}"
    return table(caption, ["run", "round#", "client", "reason"], rows[:MOST_REJECTED])


def _count(texts: Iterable[str]) -> list[str]:
    return [f"{text} ({count} {'run' if count == 1 else 'runs'})" for text, count in Counter(texts).items()]


def _made_with(manifest: Mapping[str, Any]) -> str:
    machine = manifest.get("machine", {})
    versions = [f"{name} {number}" for name, number in manifest.get("versions", {}).items()]
    if "python" in machine:
        versions.append(f"python {machine['python']}")
    place = " ".join(str(machine[key]) for key in ("system", "processor") if key in machine)
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    return ", ".join(part for part in (*versions, place, cores) if part)


def _toml(config: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> str:
    """A config that can be saved and run again; where there are several seeds, the first of them."""
    others = f"# one run for each of the seeds {join_values(seeds)}\n" if len(seeds) > 1 else ""
    return others + to_toml(config).rstrip()
