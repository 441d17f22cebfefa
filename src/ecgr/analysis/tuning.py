"""Choosing hyper-parameters: where to look for them, and what the scores of trials say.

A space is an `Axis` for each hyper-parameter. Trials are the defaults and quasi-random points of the space; a best
value in the outer tenth of a range extends it. A trial that failed on any seed is out. How sure a choice is: what would
have been chosen without one of the seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from ecgr.analysis.quantities import ACCURACY, Quantity

OUTER = 0.1
"""The share of a range, on a log scale, that counts as its edge."""

Values = Mapping[str, Any]
Side = Literal["low", "high"]


@dataclass(frozen=True, slots=True)
class Axis:
    """One hyper-parameter: its default, the range that is searched on a log scale, and the most that it may be."""

    default: float
    low: float
    high: float
    most: float = math.inf

    def at(self, share: float) -> float:
        """The value at this share of the range, to three digits.

        >>> Axis(0.1, 0.01, 1.0).at(0.5)
        0.1
        """
        return min(self.most, float(f"{self.low * (self.high / self.low) ** share:.3g}"))

    def edge(self, value: float) -> Side | None:
        """The side in whose outer tenth a value lies; None if there is nothing beyond it.

        >>> axis = Axis(0.1, 0.01, 1.0, most=1.0)
        >>> axis.edge(0.012), axis.edge(0.1), axis.edge(0.95)
        ('low', None, None)
        """
        if value <= 0:  # no place on a log scale
            return None
        share = math.log(value / self.low) / math.log(self.high / self.low)
        if share < OUTER:
            return "low"
        return "high" if share > 1 - OUTER and self.high < self.most else None

    def beyond(self, side: Side) -> "Axis":
        """What lies beyond one side: half of the range's width more.

        >>> Axis(0.1, 0.01, 1.0).beyond("high"), Axis(0.1, 0.01, 1.0).beyond("low").low
        (Axis(default=0.1, low=1.0, high=10.0, most=inf), 0.001)
        """
        factor = math.sqrt(self.high / self.low)
        if side == "low":
            return replace(self, low=self.low / factor, high=self.low)
        return replace(self, low=self.high, high=min(self.most, self.high * factor))


Space = Mapping[str, Axis]


@dataclass(frozen=True, slots=True)
class Scored:
    """One trial: its hyper-parameters and its scores by seed, stage after stage; None where training failed."""

    values: Values
    stages: tuple[Mapping[int, float | None], ...]

    @property
    def mean(self) -> float | None:
        """Mean over the seeds of its last stage; None if one of them failed, in whichever stage."""
        return None if self.failed else self.mean_without(None)

    @property
    def failed(self) -> bool:
        return any(score is None for scores in self.stages for score in scores.values())

    def mean_without(self, seed: int | None) -> float:
        """Mean over the seeds of its last stage but for one."""
        return fmean(score for own, score in self.stages[-1].items() if own != seed and score is not None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The best trial of a method, all of them, and how sure the choice is.

    Attributes:
        edges: keys whose best value lies at the edge of what was tried.
        without: by seed, what would have been chosen without it.
        space: the ranges that were searched in the end; empty for a grid.
        extended: how many trials were added because a best value lay at an edge.
    """

    method: str
    best: Values
    trials: tuple[Scored, ...]
    edges: tuple[str, ...] = ()
    without: Mapping[int, Values] = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    extended: int = 0

    @property
    def trained(self) -> bool:
        """Whether any choice could be trained, or there was none to make."""
        return not self.trials or any(trial.mean is not None for trial in self.trials)

    @property
    def agreeing(self) -> int:
        """How many of the seeds could be left out without another choice."""
        return sum(values == self.best for values in self.without.values())

    @property
    def warnings(self) -> list[str]:
        """What a person should know before believing in a tuned method."""
        if not self.trained:
            chosen = ", ".join(f"{key} = {value!r}" for key, value in self.best.items())
            return [f"{self.method}: every choice diverged; it goes on with the first, {chosen}"]
        lines = []
        for key in self.edges:
            value, tried = self.best[key], [trial.values[key] for trial in self.trials]
            side = "largest" if value - min(tried) > max(tried) - value else "smallest"
            near, advice = ("near ", "start from another") if self.space else ("", "widen the grid")
            lines.append(f"{self.method}: the best {key} is {value!r}, {near}the {side} that was tried; {advice}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """All of it for ``tuning.json``."""
        return {
            "method": self.method,
            "chosen": dict(self.best),
            "agreeing": self.agreeing,
            "without": {str(seed): dict(values) for seed, values in self.without.items()},
            "edges": list(self.edges),
            "space": {key: [axis.low, axis.high] for key, axis in self.space.items()},
            "extended": self.extended,
            "trials": [
                {
                    "values": dict(trial.values),
                    "mean": trial.mean,
                    "scores": [{str(seed): score for seed, score in scores.items()} for scores in trial.stages],
                }
                for trial in self.trials
            ],
        }


def first_trials(space: Space, count: int) -> list[dict[str, float]]:
    """The defaults, then quasi-random points of the space: the same ones every time.

    >>> first_trials({"optimizer.lr": Axis(0.1, 0.01, 1.0)}, 3)[0]
    {'optimizer.lr': 0.1}
    """
    defaults = {key: axis.default for key, axis in space.items()}
    return [defaults, *points(space, count - 1)] if space else [defaults]


def points(space: Space, count: int) -> list[dict[str, float]]:
    """Quasi-random points of a space, on a log scale."""
    if count < 1:
        return []
    from scipy.stats import qmc  # takes as long to import as everything else

    rows = qmc.Halton(d=len(space), seed=0).random(count)
    return [{key: space[key].at(float(share)) for key, share in zip(space, row, strict=True)} for row in rows]


def extension(
    space: Space, trials: Sequence[Scored], quantity: Quantity, count: int
) -> tuple[Space, list[dict[str, float]]]:
    """The space with the range extended at whose edge the best trial lies, and trials there; none where it does not.

    Of several such ranges the first is, the learning rate's before others; all else stays as the best trial has it.
    Where every trial failed, smaller learning rates are tried.

    >>> tried = [Scored({"lr": lr}, ({100: lr},)) for lr in (0.1, 0.9)]
    >>> wider, more = extension({"lr": Axis(0.1, 0.01, 1.0)}, tried, ACCURACY, 4)
    >>> wider["lr"].high, len(more), min(trial["lr"] for trial in more) >= 1.0
    (10.0, 4, True)
    """
    ranked = ranking(trials, quantity)
    centre = ranked[0].values if ranked else trials[0].values
    for key, axis in space.items():
        side: Side | None = axis.edge(centre[key]) if ranked else "low"
        if side is not None:
            band = axis.beyond(side)
            wider = replace(axis, low=min(axis.low, band.low), high=max(axis.high, band.high))
            return {**space, key: wider}, [{**centre, **point} for point in points({key: band}, count)]
    return space, []


def ranking(trials: Sequence[Scored], quantity: Quantity = ACCURACY) -> list[Scored]:
    """The trials that could be trained, best first; of equals the earlier one."""
    scored = [(trial, mean) for trial in trials if (mean := trial.mean) is not None]
    return [trial for trial, _ in sorted(scored, key=lambda pair: -quantity.gain(pair[1]))]


def choose(
    method: str,
    trials: Sequence[Scored],
    quantity: Quantity = ACCURACY,
    space: Space | None = None,
    extended: int = 0,
) -> Choice:
    """The best of the trials that came furthest; of equals the first, which is also taken where none could be trained.

    >>> tried = [Scored({"optimizer.lr": lr}, ({100: score},)) for lr, score in ((0.01, 0.5), (0.1, 0.9), (1.0, None))]
    >>> choose("fedavg", tried).best, choose("fedavg", tried).edges
    ({'optimizer.lr': 0.1}, ())
    >>> choose("fedavg", tried[:2]).warnings[0]
    'fedavg: the best optimizer.lr is 0.1, the largest that was tried; widen the grid'
    """
    space = space or {}
    ranked = ranking(trials, quantity)
    if not ranked:
        return Choice(method, trials[0].values if trials else {}, tuple(trials), space=space, extended=extended)
    last = max(len(trial.stages) for trial in ranked)
    finalists = [trial for trial in ranked if len(trial.stages) == last]
    best = finalists[0]
    seeds = list(best.stages[-1]) if len(best.stages[-1]) > 1 else []
    without = {seed: max(finalists, key=lambda trial: quantity.gain(trial.mean_without(seed))).values for seed in seeds}
    edges = tuple(key for key in best.values if _at_edge(key, best, trials, space))
    return Choice(method, best.values, tuple(trials), edges, without, space, extended)


def _at_edge(key: str, best: Scored, trials: Sequence[Scored], space: Space) -> bool:
    if key in space:
        return space[key].edge(best.values[key]) is not None
    tried = {trial.values[key] for trial in trials}
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in tried)
    return numbers and len(tried) > 1 and best.values[key] in (min(tried), max(tried))
