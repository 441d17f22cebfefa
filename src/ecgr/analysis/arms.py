"""Runs gathered for a report: an arm is what differs in the seed alone, a group is what may be compared.

Only finished runs enter means; the others are shown and named. Points of a length curve are in no arm.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ecgr.analysis.collect import Run as Run
from ecgr.analysis.collect import read_runs as read_runs
from ecgr.analysis.comparison import BASELINE as BASELINE
from ecgr.analysis.comparison import By, Comparison, compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.pairs import group_of, name_of


@dataclass(frozen=True, slots=True, eq=False)
class Arm:
    """The runs that differ in the seed alone; ``name`` is the arm's within its group: its regulator, or its method."""

    setting: str
    algorithm: str
    regulator: str
    runs: tuple[Run, ...]
    method: str
    name: str

    @property
    def label(self) -> str:
        """For rows of tables and plots."""
        return ", ".join(part for part in (self.setting, self.method) if part)

    @property
    def counted(self) -> tuple[Run, ...]:
        """The runs that means are over: the finished ones, or all while none is finished."""
        return tuple(run for run in self.runs if run.state == "finished") or self.runs


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The arms that may be compared, the baseline first: of one setting, and of one algorithm where regulators are."""

    setting: str
    algorithm: str
    arms: tuple[Arm, ...]

    @property
    def label(self) -> str:
        """For headings."""
        return (
            f"{self.algorithm} ({self.setting})" if self.setting and self.algorithm else self.algorithm or self.setting
        )


def group_runs(runs: Sequence[Run], baseline: str = BASELINE, by: By = "regulator") -> list[Group]:
    """Arms within groups, in the order in which their runs come, each arm's runs by seed."""
    groups: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in runs:
        if run.summary.role == "arm":
            groups.setdefault(group_of(run.summary, by), {}).setdefault(name_of(run.summary, by), []).append(run)
    return [
        Group(
            setting,
            algorithm,
            tuple(_arm(name, inside[name]) for name in sorted(inside, key=lambda name: name != baseline)),
        )
        for (setting, algorithm), inside in groups.items()
    ]


def _arm(name: str, runs: Sequence[Run]) -> Arm:
    first = runs[0].summary
    by_seed = tuple(sorted(runs, key=lambda run: run.summary.seed))
    return Arm(first.setting, first.algorithm, first.regulator, by_seed, first.method, name)


def summaries_of(runs: Sequence[Run]) -> list[RunSummary]:
    """What a comparison needs of those among ``runs`` that ended; a diverged one has no number at its end."""
    return [run.summary for run in runs if run.state in ("finished", "diverged")]


def compare_finished(runs: Sequence[Run], baseline: str | None = None, by: By = "regulator") -> Comparison:
    """The comparison of those among ``runs`` that are finished."""
    return compare(summaries_of(runs), baseline, by)
