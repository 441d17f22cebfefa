"""Runs as a report sees them: each with its labels and state, gathered into arms and groups.

An arm is what differs in the seed alone: setting, algorithm, regulator. A group is what may be compared: the arms of
one setting and algorithm. Only finished runs enter means; the others are shown and named.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ecgr.analysis.collect import Label, labels, summary
from ecgr.analysis.comparison import Comparison, compare
from ecgr.analysis.metrics import RunSummary
from ecgr.errors import DataError
from ecgr.runs.record import RunRecord

BASELINE = "none"
State = Literal["finished", "still going", "interrupted"]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run, its rounds read once."""

    record: RunRecord
    setting: str
    algorithm: str
    regulator: str
    state: State
    rounds: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self.record.directory.resolve().name

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.record.seed

    @property
    def planned(self) -> int:
        """Rounds it was to have."""
        return int(self.record.config.get("federation", {}).get("rounds", len(self.rounds)))


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """The runs that differ in the seed alone."""

    setting: str
    algorithm: str
    regulator: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """For rows of tables and plots."""
        return ", ".join(part for part in (self.setting, self.algorithm, self.regulator) if part)

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that means are over: the finished ones, or all while none is finished."""
        return tuple(run for run in self.runs if run.state == "finished") or self.runs


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The arms of one setting and algorithm, the baseline first."""

    setting: str
    algorithm: str
    arms: tuple[Arm, ...]

    @property
    def label(self) -> str:
        """For headings."""
        return f"{self.algorithm} ({self.setting})" if self.setting else self.algorithm


def read_runs(records: Sequence[RunRecord], treatment: Sequence[str] = ()) -> list[Run]:
    """The runs with labels that name only what sets them apart; each directory once.

    Config keys of the ``treatment`` are compared as regulators are.
    """
    unique = list({record.directory.resolve(): record for record in records}.values())
    if not unique:
        raise DataError("nothing to report: no run was given")
    return [
        Run(record, *label, state_of(record), tuple(record.rounds))
        for record, label in zip(unique, labels(unique, treatment), strict=True)
    ]


def group_runs(runs: Sequence[Run], baseline: str = BASELINE) -> list[Group]:
    """Arms within groups, in the order in which their runs come, each arm's runs by seed."""
    arms: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        arms.setdefault((run.setting, run.algorithm), {}).setdefault(run.regulator, []).append(run)
    return [
        Group(
            setting,
            algorithm,
            tuple(
                Arm(setting, algorithm, regulator, tuple(sorted(inside[regulator], key=lambda run: run.seed)))
                for regulator in sorted(inside, key=lambda regulator: regulator != baseline)
            ),
        )
        for (setting, algorithm), inside in arms.items()
    ]


def summaries_of(runs: Sequence[Run]) -> list[RunSummary]:
    """What a comparison needs of the finished ones among ``runs``."""
    return [
        summary(Label(run.setting, run.algorithm, run.regulator), run.seed, run.rounds)
        for run in runs
        if run.state == "finished"
    ]


def compare_finished(runs: Sequence[Run], baseline: str = BASELINE) -> Comparison:
    """The comparison of these runs: of those that are finished."""
    return compare(summaries_of(runs), baseline)


def state_of(record: RunRecord) -> State:
    """Finished, still going (its process lives), or interrupted."""
    if record.finished:
        return "finished"
    return "still going" if _held(record.directory / ".holder") else "interrupted"


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
