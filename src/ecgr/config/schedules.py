"""Learning rates by round, the same for every client of a round."""

from math import cos, inf, pi
from typing import Protocol

from ecgr.component import Count, Fraction, Positive, component
from ecgr.tables import Table


class Schedule(Protocol):
    """An entry of ``SCHEDULES``: a pure function of the round."""

    def factor_at(self, round_index: int, rounds: int) -> float:
        """What the first learning rate is multiplied by in round ``round_index`` (from 0) of ``rounds``."""
        ...


@component
class Constant:
    """The same learning rate in every round."""

    def factor_at(self, round_index: int, rounds: int) -> float:
        """One."""
        return 1.0


@component
class Step:
    """Multiply the learning rate by factor every so many rounds; the first drop comes at round `first` (from 0).

    >>> [Step(every=10).factor_at(t, 100) for t in (0, 9, 10, 20)]
    [1.0, 1.0, 0.5, 0.25]
    >>> [Step(every=10, first=9).factor_at(t, 100) for t in (8, 9, 18, 19)]
    [1.0, 0.5, 0.5, 0.25]
    """

    every: Count = 10
    factor: Positive = 0.5
    first: Count | None = None

    def factor_at(self, round_index: int, rounds: int) -> float:
        """``factor`` to the number of drops so far."""
        first = self.every if self.first is None else self.first
        drops = max(0, (round_index - first) // self.every + 1)
        try:
            return float(self.factor**drops)
        except OverflowError:  # a factor above 1, many times: the updates will say so themselves
            return inf


@component
class Cosine:
    """Half a cosine from the first learning rate towards `floor` times it.

    >>> [round(Cosine().factor_at(t, 4), 3) for t in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """

    floor: Fraction = 0.0

    def factor_at(self, round_index: int, rounds: int) -> float:
        """The cosine at this share of the rounds."""
        return self.floor + (1 - self.floor) * (1 + cos(pi * round_index / rounds)) / 2


SCHEDULES: Table[Schedule] = Table("schedule", "schedules", {"constant": Constant, "step": Step, "cosine": Cosine})
