"""From run directories to what a comparison and a report need: each record is read once, here.

Only finished runs enter means; the others are shown and named.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ecgr.analysis.quantities import ACCURACY, Quantity, chance_level
from ecgr.analysis.summaries import RunSummary
from ecgr.errors import DataError
from ecgr.runs.differences import refuse_mixed
from ecgr.runs.record import RunRecord, holder_path

State = Literal["finished", "still going", "interrupted", "diverged"]

APART = {"run.seed", "run.name", "data.sha256", "data.split_seed"}
"""Keys that never set two settings apart: seeds are paired, names are labels, other data are refused."""
METHOD = ("loss", "algorithm", "server", "regulator", "local", "finetune", "dp", "server_steps", "head")
"""Sections of a config that make up the method: what is compared, not what must be alike."""


OWN_DATA = ("mean ", " on clients' own data")
"""What stands around a metric's name where it is the mean over clients, each scored on its own samples."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run: its record, its rounds read once of those it was to have, and its summary."""

    record: RunRecord
    summary: RunSummary
    state: State
    rounds: tuple[dict[str, Any], ...]
    planned: int

    @property
    def name(self) -> str:
        return self.record.directory.resolve().name


@dataclass(frozen=True, slots=True, eq=False)
class MethodRuns:
    """The runs of one method under one setting: they differ in the seed alone."""

    setting: str
    method: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        return ", ".join(part for part in (self.setting, self.method) if part)

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that means are over: the finished ones, or all while none is finished."""
        return tuple(run for run in self.runs if run.state == "finished") or self.runs


def find_runs(directories: Iterable[str | Path]) -> list[RunRecord]:
    """The runs in or below ``directories``, in order of path; raises `DataError` where there is none."""
    records = []
    for directory in map(Path, directories):
        paths = [directory] if RunRecord.is_run(directory) else sorted(p.parent for p in directory.rglob("run.json"))
        if not paths:
            raise DataError(f"{directory}: no run in or below it; `ecgr run` and `ecgr compare` make them")
        records += [RunRecord.open(path) for path in paths]
    return records


def read_runs(
    records: Iterable[RunRecord], methods: Sequence[str] | None = None, setting: str = "", tuned: bool = False
) -> list[Run]:
    """Each directory once, under the method and the setting that it is compared as.

    A plan gives the ``methods``, in the order of the records, and all its runs are of one ``setting``; it also knows
    whether they were ``tuned``. Without a plan a run goes by its record's method, and what else differs between runs is
    their setting.
    """
    unique = {record.directory.resolve(): record for record in records}.values()
    if not unique:
        raise DataError("nothing to report: no run was given")
    settings = settings_of(unique) if methods is None else [setting] * len(unique)
    names = [_method(record) for record in unique] if methods is None else methods
    for one in dict.fromkeys(settings):
        alike = [each for each in zip(unique, names, settings, strict=True) if each[2] == one]
        refuse_mixed([record for record, _, _ in alike], [name for _, name, _ in alike])
    return [_run(*each, tuned) for each in zip(unique, names, settings, strict=True)]


def settings_of(records: Iterable[RunRecord]) -> list[str]:
    """What of each run's config, its method and seed apart, is not the same in all runs."""
    configs = [
        {key: value for key, value in flat(record.config).items() if key.partition(".")[0] not in METHOD}
        for record in records
    ]
    varying = varying_keys(configs)
    if "data.name" in varying:  # it says it all about what goes with it: the model, the number of rounds
        varying = [key for key in varying if key == "data.name" or not _goes_with_data(key, configs)]
    return [", ".join(f"{key}={config[key]}" for key in varying if key in config) for config in configs]


def varying_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys, seeds and names apart, that differ between runs: a key that only some of them have does, too."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in APART and len({repr(c.get(key, ...)) for c in configs}) > 1]


def flat(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Dotted keys.

    >>> flat({"run": {"seed": 0}})
    {'run.seed': 0}
    """
    return {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}


def group_runs(runs: Sequence[Run], baseline: str) -> dict[str, list[MethodRuns]]:
    """Methods by setting, in the order in which their runs come, the baseline first; their runs by seed."""
    found: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        found.setdefault(run.summary.setting, {}).setdefault(run.summary.method, []).append(run)
    return {
        setting: [
            MethodRuns(setting, method, tuple(sorted(own[method], key=lambda run: run.summary.seed)))
            for method in sorted(own, key=lambda method: method != baseline)
        ]
        for setting, own in found.items()
    }


def _run(record: RunRecord, method: str, setting: str, tuned: bool) -> Run:
    rounds, metric, state = tuple(record.rounds), quantity_of(record.manifest), state_of(record)
    planned = int(record.config.get("federation", {}).get("rounds", len(rounds)))
    key = metric.name.removeprefix(OWN_DATA[0]).removesuffix(OWN_DATA[1])
    lost = (None,) * (planned - len(rounds)) if state == "diverged" else ()
    last = rounds[-1] if rounds else {}
    up, down = last.get("bytes_up"), last.get("bytes_down")
    summary = RunSummary(
        method=method,
        seed=record.seed,
        values=(*(value_of(row, key) for row in rounds), *lost),
        setting=setting,
        metric=metric,
        chance=chance_level(replace(metric, name=key), record.manifest),
        diverged=state == "diverged" or _ran_away(rounds),
        rate=record.config.get("optimizer", {}).get("lr"),
        constant_rate=record.config.get("schedule", {}).get("name", "constant") == "constant",
        tuned=tuned,
        overlap=record.manifest.get("overlap"),
        privacy=last.get("privacy"),
        own=tuple((int(client), value) for client, value in last.get("own", {}).get("clients", {}).items()),
        sent=None if up is None or down is None else int(up + down),
        weight=record.manifest.get("tested", 1),
    )
    return Run(record, summary, state, rounds, planned)


def _goes_with_data(key: str, configs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether runs of one data set agree in it."""
    sets = {repr(config["data.name"]) for config in configs}
    return len({(repr(config["data.name"]), repr(config.get(key))) for config in configs}) == len(sets)


def quantity_of(manifest: Mapping[str, Any]) -> Quantity:
    """The primary metric that ``run.json`` describes; records that describe none are of accuracy.

    Where clients were scored on their own samples, it is another one, which cannot be compared with that of all.
    """
    described = manifest.get("metrics")
    if not described:
        return ACCURACY
    first = described[0]
    own = manifest.get("config", {}).get("data", {}).get("score") == "own"
    name = str(first["name"]).join(OWN_DATA) if own else str(first["name"])
    return Quantity(name, str(first.get("unit", "")), bool(first.get("larger_is_better", True)))


def value_of(row: Mapping[str, Any], metric: str) -> float | None:
    """A metric of one round; None where it was not a finite number.

    >>> value_of({"accuracy": 0.5}, "accuracy"), value_of({"metrics": {"mae": 2}}, "mae"), value_of({}, "mae")
    (0.5, 2.0, None)
    """
    value = row.get("metrics", {}).get(metric, row.get(metric))
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def state_of(record: RunRecord) -> State:
    """Finished, diverged, still going (its process lives), or interrupted."""
    if record.finished:
        return "finished"
    if record.diverged is not None:
        return "diverged"
    return "still going" if _held(holder_path(record.directory)) else "interrupted"


def _method(record: RunRecord) -> str:
    if "method" not in record.manifest:
        raise DataError(f"{record.directory}/run.json: names no method; it is of an earlier version, run it anew")
    return str(record.manifest["method"])


def _ran_away(rounds: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a server step has no finite length, though others have one.

    Scores may stay finite all the same, as when every sample is taken for one class.
    """
    known = [value_of(row, "step_norm") is not None for row in rounds]
    return any(known) and not all(known)


def _held(holder: Path) -> bool:
    try:
        process = int(holder.read_text())
        if os.name != "posix" or process <= 0:
            return False
        os.kill(process, 0)  # signal 0 asks and does nothing
    except PermissionError:
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return True
