"""What is measured on one finished run: a table of pure functions, the primary one fixed beforehand.

Accuracies are shares between 0 and 1, as in the records.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ecgr.errors import ConfigError

PRIMARY = "last5"
"""The metric that decides. Not an option: choosing it after the results would make every p-value wrong."""
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a comparison needs to know of a run; ``setting`` labels everything but the first three fields.

    >>> RunSummary("fedavg", "ecgr", seed=0, accuracy=(0.5, 0.6)).worst_client
    (None, None)
    """

    algorithm: str
    regulator: str
    seed: int
    accuracy: tuple[float, ...]
    worst_client: tuple[float | None, ...] = ()
    setting: str = ""

    def __post_init__(self) -> None:
        if not self.worst_client:
            object.__setattr__(self, "worst_client", (None,) * self.rounds)
        if len(self.worst_client) != self.rounds:
            raise ConfigError(f"{self.name}: accuracy has {self.rounds} rounds, worst_client {len(self.worst_client)}")
        shares = (*self.accuracy, *(share for share in self.worst_client if share is not None))
        if wrong := [share for share in shares if not 0 <= share <= 1]:
            raise ConfigError(f"{self.name}: accuracy {wrong[0]} is not a share between 0 and 1")

    @property
    def rounds(self) -> int:
        """Rounds evaluated."""
        return len(self.accuracy)

    @property
    def name(self) -> str:
        """For messages."""
        return " ".join(part for part in (self.setting, self.algorithm, self.regulator) if part) + f" seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run, given the run and the target accuracy; None if the run does not have it."""

    measure: Callable[[RunSummary, float | None], float | None]
    description: str
    unit: Literal["share", "rounds"] = "share"
    lower_is_better: bool = False
    optimistic: bool = False


def last(run: RunSummary) -> float:
    """Accuracy at the last round.

    >>> last(RunSummary("fedavg", "none", 0, accuracy=(0.5, 0.7, 0.6)))
    0.6
    """
    return run.accuracy[-1]


def last5(run: RunSummary) -> float:
    """Mean accuracy of the last five rounds, or of all if there are fewer.

    >>> last5(RunSummary("fedavg", "none", 0, accuracy=(0.0, 0.25, 0.25, 0.5, 0.5, 1.0)))
    0.5
    """
    return fmean(run.accuracy[-5:])


def best(run: RunSummary) -> float:
    """Highest accuracy of any round: chosen on test data, hence too high.

    >>> best(RunSummary("fedavg", "none", 0, accuracy=(0.5, 0.7, 0.6)))
    0.7
    """
    return max(run.accuracy)


def area(run: RunSummary) -> float:
    """Mean accuracy over all rounds: the area under the curve.

    >>> area(RunSummary("fedavg", "none", 0, accuracy=(0.25, 0.5, 0.75)))
    0.5
    """
    return fmean(run.accuracy)


def rounds_to_target(run: RunSummary, target: float | None) -> float | None:
    """First round, counted from one, with at least the target accuracy; None if there is none.

    >>> rounds_to_target(RunSummary("fedavg", "none", 0, accuracy=(0.5, 0.7, 0.6)), target=0.6)
    2.0
    """
    if target is None:
        return None
    reached = (float(number) for number, share in enumerate(run.accuracy, 1) if share >= target - ROUNDING)
    return next(reached, None)


def worst_client(run: RunSummary) -> float | None:
    """Mean of the worst client's accuracy over the last five rounds, where it is known.

    >>> worst_client(RunSummary("fedavg", "none", 0, accuracy=(0.5, 0.7), worst_client=(None, 0.25)))
    0.25
    """
    known = [share for share in run.worst_client[-5:] if share is not None]
    return fmean(known) if known else None


METRICS: dict[str, Metric] = {
    "last5": Metric(lambda run, _: last5(run), "mean accuracy of the last five rounds"),
    "last": Metric(lambda run, _: last(run), "accuracy at the last round"),
    "best": Metric(lambda run, _: best(run), "highest accuracy of any round, chosen on test data", optimistic=True),
    "area": Metric(lambda run, _: area(run), "mean accuracy over all rounds, the area under the curve"),
    "rounds_to_target": Metric(
        rounds_to_target,
        "first round with the accuracy that the weakest baseline run of the algorithm ends with",
        unit="rounds",
        lower_is_better=True,
    ),
    "worst_client": Metric(lambda run, _: worst_client(run), "worst client's accuracy, mean of the last five rounds"),
}


def target_accuracy(baseline_runs: Sequence[RunSummary]) -> float:
    """The lowest ``last5`` among the baseline runs.

    Read from the baseline alone, so the other side has no say in it; every baseline run reaches it.

    >>> target_accuracy([RunSummary("fedavg", "none", s, accuracy=(0.1, 0.5 + s / 10)) for s in (0, 1)])
    0.3
    """
    return min(last5(run) for run in baseline_runs)
