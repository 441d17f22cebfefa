"""Choosing hyper-parameters from scored trials: the best mean, and whether it lies at the edge of what was tried."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ecgr.analysis.quantities import ACCURACY, Quantity


@dataclass(frozen=True, slots=True)
class Scored:
    """One choice of hyper-parameters and how it scored, by seed; None where training failed."""

    values: Mapping[str, Any]
    scores: Mapping[int, float | None]

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None if one of them failed."""
        known = [score for score in self.scores.values() if score is not None]
        return fmean(known) if known and len(known) == len(self.scores) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """The best trial of a method, all of them, and the keys whose best value is the least or greatest tried."""

    method: str
    best: Mapping[str, Any]
    trials: tuple[Scored, ...]
    edges: tuple[str, ...]

    @property
    def trained(self) -> bool:
        """Whether any choice could be trained."""
        return any(trial.mean is not None for trial in self.trials)

    @property
    def warnings(self) -> list[str]:
        """What a person should know before believing in a tuned method."""
        if not self.trained:
            chosen = ", ".join(f"{key} = {value!r}" for key, value in self.best.items())
            return [f"{self.method}: every choice diverged; it goes on with the first, {chosen}"]
        lines = []
        for key in self.edges:
            tried = sorted({trial.values[key] for trial in self.trials})
            side = "smallest" if self.best[key] == tried[0] else "largest"
            lines.append(
                f"{self.method}: the best {key} is {self.best[key]!r}, the {side} that was tried; widen the grid"
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        """All of it for ``tuning.json``."""
        return {
            "method": self.method,
            "chosen": dict(self.best),
            "edges": list(self.edges),
            "trials": [
                {"values": dict(t.values), "mean": t.mean, "scores": {str(s): score for s, score in t.scores.items()}}
                for t in self.trials
            ],
        }


def choose(method: str, trials: Sequence[Scored], quantity: Quantity = ACCURACY) -> Choice:
    """The trial with the best mean; of equals the first, which is also taken where none could be trained.

    >>> tried = [Scored({"optimizer.lr": lr}, {100: score}) for lr, score in ((0.01, 0.5), (0.1, 0.9), (1.0, None))]
    >>> choose("fedavg", tried).best, choose("fedavg", tried).edges
    ({'optimizer.lr': 0.1}, ())
    >>> choose("fedavg", tried[:2]).warnings
    ['fedavg: the best optimizer.lr is 0.1, the largest that was tried; widen the grid']
    """
    scored = [(trial, mean) for trial in trials if (mean := trial.mean) is not None]
    if not scored:
        return Choice(method, trials[0].values, tuple(trials), edges=())
    best = max(scored, key=lambda pair: quantity.gain(pair[1]))[0]
    return Choice(method, best.values, tuple(trials), tuple(key for key in best.values if _at_edge(key, best, trials)))


def _at_edge(key: str, best: Scored, trials: Sequence[Scored]) -> bool:
    tried = {trial.values[key] for trial in trials}
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in tried)
    return numbers and len(tried) > 1 and best.values[key] in (min(tried), max(tried))
