"""From run directories to what a comparison and a report need: each record is read once, here."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ecgr.analysis.labels import Config, labels, server_lr, tuned_label, without_server_lr
from ecgr.analysis.metrics import RunSummary, Values
from ecgr.analysis.quantities import ACCURACY, Quantity, chance_level
from ecgr.errors import DataError
from ecgr.runs.place import holder_path
from ecgr.runs.record import RunRecord

State = Literal["finished", "still going", "interrupted", "diverged"]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run: its record, its rounds read once, and its summary with the labels that set it apart."""

    record: RunRecord
    summary: RunSummary
    state: State
    rounds: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.record.directory.resolve().name

    @property
    def planned(self) -> int:
        """Rounds it was to have."""
        return _planned(self.record, self.rounds)


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
    records: Sequence[RunRecord],
    treatment: Sequence[str] = (),
    *,
    tuned: Sequence[str] = (),
    length: Sequence[RunRecord] = (),
) -> list[Run]:
    """Each directory once, labelled so that runs to be compared share setting and algorithm.

    Args:
        records: The runs of the comparison.
        treatment: Config keys that are compared, as the regulator is, instead of having to be alike.
        tuned: Config keys that were chosen for each method, and neither set settings apart nor are named.
        length: Runs of baselines at other server step lengths: points of the length curve, labelled as the baseline.
    """
    arms = {record.directory.resolve(): record for record in records}
    curve = {place: record for record in length if (place := record.directory.resolve()) not in arms}
    unique = [*arms.values(), *curve.values()]
    if not unique:
        raise DataError("nothing to report: no run was given")
    configs = [*(r.config for r in arms.values()), *(without_server_lr(r.config) for r in curve.values())]
    methods = [*(_method(record) for record in arms.values()), *(None for _ in curve)]
    named = labels(configs, methods, treatment, tuned)
    curves = _curves([record.config for record in unique], tuned) if curve else [""] * len(unique)
    runs = []
    for record, own, of_curve in zip(unique, named, curves, strict=True):
        rounds = tuple(record.rounds)
        metric, state = quantity_of(record.manifest), state_of(record)
        lost = (None,) * (_planned(record, rounds) - len(rounds)) if state == "diverged" else ()
        summary = RunSummary(
            algorithm=own.algorithm,
            regulator=own.regulator,
            seed=record.seed,
            values=(*(value_of(row, metric.name) for row in rounds), *lost),
            worst_client=(*_column(rounds, "worst_client"), *lost),
            setting=own.setting,
            method=own.method,
            metric=metric,
            step_norms=(*_column(rounds, "step_norm"), *lost),
            server_lr=server_lr(record.config),
            role="length" if record.directory.resolve() in curve else "arm",
            chance=chance_level(metric, record.manifest),
            curve=of_curve,
            tuned=tuned_label(record.config, tuned),
        )
        runs.append(Run(record, summary, state, rounds))
    return runs


def summarise(records: Sequence[RunRecord], treatment: Sequence[str] = ()) -> list[RunSummary]:
    """One summary a run, as `read_runs` labels them."""
    return [run.summary for run in read_runs(records, treatment)] if records else []


def quantity_of(manifest: Mapping[str, Any]) -> Quantity:
    """The primary metric that ``run.json`` describes; records that describe none are of accuracy."""
    described = manifest.get("metrics")
    if not described:
        return ACCURACY
    first = described[0]
    return Quantity(str(first["name"]), str(first.get("unit", "")), bool(first.get("larger_is_better", True)))


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


def _planned(record: RunRecord, rounds: Sequence[Mapping[str, Any]]) -> int:
    """Rounds a run was to have."""
    return int(record.config.get("federation", {}).get("rounds", len(rounds)))


def _curves(configs: Sequence[Config], tuned: Sequence[str]) -> list[str]:
    """What runs have in common that differ in the length of the server's step alone."""
    named = labels([without_server_lr(config) for config in configs], [None] * len(configs), tuned=tuned)
    return [own.method for own in named]


def _method(record: RunRecord) -> str | None:
    name = record.manifest.get("method")
    return str(name) if name else None


def _column(rounds: Sequence[Mapping[str, Any]], name: str) -> Values:
    return tuple(value_of(row, name) for row in rounds)


def _held(holder: Path) -> bool:
    """Whether the process named in a run's holder file is alive on this machine."""
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
