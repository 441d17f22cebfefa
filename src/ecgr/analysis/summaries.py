"""A run's curve and what is read off it: a table of pure functions, the primary one fixed beforehand.

A curve is the task's primary metric by round, in its own unit and direction (`Quantity`). ``summaries.json`` holds the
curves of a comparison: all that it needs, small enough to keep where the runs themselves are not.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.errors import ConfigError, DataError

PRIMARY = "last5"
"""The metric that decides. Not an option: choosing it after the results would make every p-value wrong."""
LAST = 5
"""Rounds whose mean counts as where a run ended; all of them where there are fewer."""
ROUNDING = 1e-12

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a comparison needs to know of a run.

    ``values`` are the primary metric by round, None where it was not finite; ``setting`` labels what runs to be
    compared must have in common; ``step_norms`` are the lengths of the server's steps; ``chance`` is what a constant
    guess reaches.

    >>> run = RunSummary("fedavg+ecgr", seed=0, values=(0.5, 0.6))
    >>> run.name, run.worst_client
    ('fedavg+ecgr seed 0', (None, None))
    """

    method: str
    seed: int
    values: Values
    worst_client: Values = ()
    setting: str = ""
    metric: Quantity = ACCURACY
    step_norms: Values = ()
    chance: float | None = None

    def __post_init__(self) -> None:
        for column in ("worst_client", "step_norms"):
            if not getattr(self, column):
                object.__setattr__(self, column, (None,) * self.rounds)
            if len(getattr(self, column)) != self.rounds:
                raise ConfigError(
                    f"{self.name}: {self.metric.name} has {self.rounds} rounds, {column} {len(getattr(self, column))}"
                )
        known = [value for value in (*self.values, *self.worst_client) if value is not None]
        if wrong := [value for value in known if not math.isfinite(value)]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a finite number")
        if wrong := [value for value in known if self.metric.is_share and not 0 <= value <= 1]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a share between 0 and 1")

    @property
    def rounds(self) -> int:
        return len(self.values)

    @property
    def ran_away(self) -> bool:
        """Whether a server step has no finite length, though the others have one: training diverged there.

        Scores may stay finite all the same, as when every sample is taken for one class.
        """
        known = [norm is not None for norm in self.step_norms]
        return any(known) and not all(known)

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.setting, self.method) if part) + f" seed {self.seed}"


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

    >>> last(RunSummary("fedavg", 0, values=(0.5, 0.7, 0.6)))
    0.6
    """
    return run.values[-1]


def last5(run: RunSummary) -> float | None:
    """Mean value of the last five rounds, or of all if there are fewer; None where training diverged.

    >>> last5(RunSummary("fedavg", 0, values=(0.0, 0.25, 0.25, 0.5, 0.5, 1.0)))
    0.5
    >>> last5(RunSummary("fedavg", 0, values=(0.5, 0.1), step_norms=(1.0, None))) is None
    True
    """
    return None if run.ran_away else mean_of_last(run.values)


def best(run: RunSummary) -> float | None:
    """Best value of any round: chosen on test data, hence too good.

    >>> best(RunSummary("fedavg", 0, values=(0.5, 0.7, 0.6)))
    0.7
    """
    known = [value for value in run.values if value is not None]
    return max(known, key=run.metric.gain, default=None)


def area(run: RunSummary) -> float | None:
    """Mean value over all rounds: the area under the curve.

    >>> area(RunSummary("fedavg", 0, values=(0.25, 0.5, 0.75)))
    0.5
    """
    known = [value for value in run.values if value is not None]
    return fmean(known) if known and len(known) == run.rounds else None


def rounds_to_target(run: RunSummary, target: float | None) -> float | None:
    """First round, counted from one, that is at least as good as the target; None if there is none.

    >>> rounds_to_target(RunSummary("fedavg", 0, values=(0.5, 0.7, 0.6)), target=0.6)
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

    >>> worst_client(RunSummary("fedavg", 0, values=(0.5, 0.7), worst_client=(None, 0.25)))
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

    >>> target_value([RunSummary("fedavg", s, values=(0.1, 0.5 + s / 10)) for s in (0, 1)])
    0.3
    """
    ends = [(end, run.metric) for run in baseline_runs if (end := last5(run)) is not None]
    return min(ends, key=lambda pair: pair[1].gain(pair[0]))[0] if ends else None


def still_rising(runs: Sequence[RunSummary], margin: float | None) -> bool:
    """Whether curves still get better at the end: the last fifth of the rounds is beyond the fifth before it.

    By more than the margin of equivalence, and by more than three standard errors over the seeds.

    >>> curve = [RunSummary("fedavg", seed, tuple(r / 20 for r in range(20))) for seed in (0, 1)]
    >>> still_rising(curve, 0.005), still_rising([RunSummary("fedavg", 0, (0.1, 0.9) + (0.9,) * 18)], 0.005)
    (True, False)
    """
    fifth = max(1, min(runs[0].rounds // 2, max(2, runs[0].rounds // 5)))
    gains = []
    for run in runs:
        end, before = run.values[-fifth:], run.values[-2 * fifth : -fifth]
        if not before or None in end or None in before:
            return False
        gains.append(run.metric.gain(_mean(end) - _mean(before)))
    mean = fmean(gains)
    error = (sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)) ** 0.5 if len(gains) > 1 else 0
    return mean > max(3 * error, margin or 0.0)


def _mean(values: Sequence[float | None]) -> float:
    return fmean(value for value in values if value is not None)


def summaries_json(summaries: Sequence[RunSummary]) -> str:
    """One line a run; what is not known of it is left out.

    >>> print(summaries_json([RunSummary("fedavg", 0, values=(0.5,))]), end="")
    [
    {"method": "fedavg", "metric": {"larger_is_better": true, "name": "accuracy", "unit": "share"}, "seed": 0,
    "setting": "", "values": [0.5]}
    ]
    """
    lines = [json.dumps(_known(asdict(summary)), sort_keys=True) for summary in summaries]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    unknown = {name for name in ("worst_client", "step_norms") if not any(v is not None for v in fields[name])}
    unknown |= {name for name, value in fields.items() if value is None}
    return {name: value for name, value in fields.items() if name not in unknown}


def read_summaries(path: Path) -> list[RunSummary]:
    """What `summaries_json` wrote; raises `DataError` for anything else."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list):
            raise TypeError("it holds no list of them")
        return [_summary(row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path}: not summaries of runs ({error or type(error).__name__}); `ecgr compare` writes them"
        ) from None


def _summary(row: Mapping[str, Any]) -> RunSummary:
    fields = {**row, "metric": Quantity(**row["metric"])}
    fields |= {name: tuple(fields[name]) for name in ("values", "worst_client", "step_norms") if name in fields}
    return RunSummary(**fields)
