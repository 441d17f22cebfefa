"""What is measured on one finished run: a table of pure functions, the primary one fixed beforehand.

They read one curve, the task's primary metric by round, in its own unit and direction (`Quantity`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.errors import ConfigError

PRIMARY = "last5"
"""The metric that decides. Not an option: choosing it after the results would make every p-value wrong."""
LAST = 5
"""Rounds whose mean counts as where a run ended; all of them where there are fewer."""
ROUNDING = 1e-12

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a comparison needs to know of a run.

    ``values`` are the primary metric by round, None where it was not finite; ``setting`` labels all that runs to be
    compared must have in common, ``method`` all that is compared (by default made from algorithm and regulator).
    ``step_norms`` are the lengths of the server's steps, ``server_lr`` what they were multiplied by; a run with the
    role ``length`` is a point of a length curve and no arm of the comparison: of that of the baseline with which it
    shares ``curve``. ``chance`` is what a constant guess reaches; ``tuned`` names what was chosen for the method alone.

    >>> run = RunSummary("fedavg", "ecgr", seed=0, values=(0.5, 0.6), step_norms=(2.0, 1.0))
    >>> run.method, run.worst_client, run.path
    ('fedavg+ecgr', (None, None), 3.0)
    """

    algorithm: str
    regulator: str
    seed: int
    values: Values
    worst_client: Values = ()
    setting: str = ""
    method: str = ""
    metric: Quantity = ACCURACY
    step_norms: Values = ()
    server_lr: float = 1.0
    role: Literal["arm", "length"] = "arm"
    chance: float | None = None
    curve: str = ""
    tuned: str = ""

    def __post_init__(self) -> None:
        if not self.method:
            object.__setattr__(self, "method", method_label(self.algorithm, self.regulator))
        for column in ("worst_client", "step_norms"):
            if not getattr(self, column):
                object.__setattr__(self, column, (None,) * self.rounds)
            if len(getattr(self, column)) != self.rounds:
                raise ConfigError(
                    f"{self.name}: {self.metric.name} has {self.rounds} rounds, {column} {len(getattr(self, column))}"
                )
        self._check((*self.values, *self.worst_client))

    def _check(self, values: Sequence[float | None]) -> None:
        known = [value for value in values if value is not None]
        if wrong := [value for value in known if not math.isfinite(value)]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a finite number")
        if wrong := [value for value in known if self.metric.is_share and not 0 <= value <= 1]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a share between 0 and 1")

    @property
    def rounds(self) -> int:
        """Rounds evaluated."""
        return len(self.values)

    @property
    def path(self) -> float | None:
        """How far the global model went: the server's steps added up; None where one is not known."""
        known = [norm for norm in self.step_norms if norm is not None]
        return math.fsum(known) if known and len(known) == self.rounds else None

    @property
    def ran_away(self) -> bool:
        """Whether a server step has no finite length, though the others have one: training diverged there.

        Scores may stay finite all the same, as when every sample is taken for one class.
        """
        known = [norm is not None for norm in self.step_norms]
        return any(known) and not all(known)

    @property
    def name(self) -> str:
        """For messages."""
        return " ".join(part for part in (self.setting, self.algorithm, self.regulator) if part) + f" seed {self.seed}"


def method_label(algorithm: str, regulator: str) -> str:
    """One name for an algorithm with a regulator, where the record has none.

    >>> method_label("fedavg", "none"), method_label("fedavg", "ecgr"), method_label("fedavg", "none, server_lr=2.0")
    ('fedavg', 'fedavg+ecgr', 'fedavg, server_lr=2.0')
    """
    name, comma, treatment = regulator.partition(", ")
    return algorithm + (f"+{name}" if name not in ("none", "") else "") + comma + treatment


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a run, given the run and the target; None if the run does not have it.

    ``description`` says what it is of the primary metric, by its name and the rounds counted as the end.
    """

    measure: Callable[[RunSummary, float | None], float | None]
    description: str
    unit: Literal["metric", "rounds"] = "metric"
    optimistic: bool = False

    def describe(self, quantity: Quantity, rounds: int = LAST) -> str:
        """What it is, for people.

        >>> METRICS[PRIMARY].describe(ACCURACY), METRICS[PRIMARY].describe(ACCURACY, rounds=1)
        ('mean accuracy of the last five rounds', 'mean accuracy of the only round')
        """
        return self.description.format(
            name=quantity.name.replace("_", " "),
            best="highest" if quantity.larger_is_better else "lowest",
            last=("only round", "last two rounds", "last three rounds", "last four rounds", "last five rounds")[
                min(max(rounds, 1), LAST) - 1
            ],
        )

    def lower_is_better(self, quantity: Quantity) -> bool:
        """Its direction, given that of the primary metric."""
        return self.unit == "rounds" or not quantity.larger_is_better

    def change(self, quantity: Quantity, difference: float | None) -> str:
        """A difference as text, in points, rounds or the metric's own unit."""
        if self.unit == "metric" or difference is None:
            return quantity.change(difference)
        return f"{difference:+z.1f}"


def mean_of_last(values: Sequence[float | None]) -> float | None:
    """Mean of the last five values, or of all if there are fewer; None if one of them is missing.

    >>> mean_of_last((0.0, 0.25, 0.25, 0.5, 0.5, 1.0)), mean_of_last((0.5, None))
    (0.5, None)
    """
    end = values[-LAST:]
    known = [value for value in end if value is not None]
    return fmean(known) if known and len(known) == len(end) else None


def last(run: RunSummary) -> float | None:
    """The value of the last round.

    >>> last(RunSummary("fedavg", "none", 0, values=(0.5, 0.7, 0.6)))
    0.6
    """
    return run.values[-1]


def last5(run: RunSummary) -> float | None:
    """Mean value of the last five rounds, or of all if there are fewer; None where training diverged.

    >>> last5(RunSummary("fedavg", "none", 0, values=(0.0, 0.25, 0.25, 0.5, 0.5, 1.0)))
    0.5
    >>> last5(RunSummary("fedavg", "none", 0, values=(0.5, 0.1), step_norms=(1.0, None))) is None
    True
    """
    return None if run.ran_away else mean_of_last(run.values)


def best(run: RunSummary) -> float | None:
    """Best value of any round: chosen on test data, hence too good.

    >>> best(RunSummary("fedavg", "none", 0, values=(0.5, 0.7, 0.6)))
    0.7
    """
    known = [value for value in run.values if value is not None]
    return max(known, key=run.metric.gain, default=None)


def area(run: RunSummary) -> float | None:
    """Mean value over all rounds: the area under the curve.

    >>> area(RunSummary("fedavg", "none", 0, values=(0.25, 0.5, 0.75)))
    0.5
    """
    known = [value for value in run.values if value is not None]
    return fmean(known) if known and len(known) == run.rounds else None


def rounds_to_target(run: RunSummary, target: float | None) -> float | None:
    """First round, counted from one, that is at least as good as the target; None if there is none.

    >>> rounds_to_target(RunSummary("fedavg", "none", 0, values=(0.5, 0.7, 0.6)), target=0.6)
    2.0
    """
    if target is None:
        return None
    slack = ROUNDING * max(1.0, abs(target))
    reached = (
        float(number)
        for number, value in enumerate(run.values, 1)
        if value is not None and run.metric.gain(value - target) >= -slack
    )
    return next(reached, None)


def worst_client(run: RunSummary) -> float | None:
    """Mean of the worst client's value over the last five rounds, where it is known.

    >>> worst_client(RunSummary("fedavg", "none", 0, values=(0.5, 0.7), worst_client=(None, 0.25)))
    0.25
    """
    known = [value for value in run.worst_client[-LAST:] if value is not None]
    return fmean(known) if known else None


METRICS: dict[str, Metric] = {
    "last5": Metric(lambda run, _: last5(run), "mean {name} of the {last}"),
    "last": Metric(lambda run, _: last(run), "{name} at the last round"),
    "best": Metric(lambda run, _: best(run), "{best} {name} of any round, chosen on test data", optimistic=True),
    "area": Metric(lambda run, _: area(run), "mean {name} over all rounds, the area under the curve"),
    "rounds_to_target": Metric(
        rounds_to_target, "first round with the {name} that the weakest baseline run ends with", unit="rounds"
    ),
    "worst_client": Metric(lambda run, _: worst_client(run), "worst client's {name}, mean of the {last}"),
}


def target_value(baseline_runs: Sequence[RunSummary]) -> float | None:
    """The worst ``last5`` among the baseline runs.

    Read from the baseline alone, so the other side has no say in it; every baseline run reaches it.

    >>> target_value([RunSummary("fedavg", "none", s, values=(0.1, 0.5 + s / 10)) for s in (0, 1)])
    0.3
    """
    ends = [(end, run.metric) for run in baseline_runs if (end := last5(run)) is not None]
    return min(ends, key=lambda pair: pair[1].gain(pair[0]))[0] if ends else None
