"""The task's primary metric as a record describes it: its name, unit and direction, and how its numbers are written.

Shares of samples (accuracy) are kept as shares and shown in percent, their differences in points; everything else is
kept and shown in its own unit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, floor, fsum, log, log10, sqrt
from statistics import fmean, stdev
from typing import Any

MARGIN = 0.005
"""Half a point of a share: a smaller difference is of no practical interest."""
RELATIVE_MARGIN = 0.01
"""For other units: one per cent of the baseline's level."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """What decides a comparison.

    >>> ACCURACY.level(0.9321), ACCURACY.change(0.0123), ACCURACY.change(0.00041), ACCURACY.amount(-0.0123)
    ('93.2 %', '+1.2', '+0.04', '1.2 points')
    >>> error = Quantity("mae", unit="years", larger_is_better=False)
    >>> error.level(2.5), error.change(-0.25), error.amount(-0.25), error.gain(-0.25)
    ('2.5 years', '-0.25', '0.25 years', 0.25)
    """

    name: str = "accuracy"
    unit: str = "share"
    larger_is_better: bool = True

    @property
    def is_share(self) -> bool:
        return self.unit == "share"

    @property
    def scale(self) -> float:
        """By what numbers are multiplied to be shown."""
        return 100.0 if self.is_share else 1.0

    @property
    def words(self) -> str:
        """Its name as people write it."""
        return self.name.replace("_", " ")

    @property
    def difference_unit(self) -> str:
        """The unit of a difference, for headings; empty for pure numbers."""
        return "points" if self.is_share else self.unit

    @property
    def direction(self) -> str:
        return "larger is better" if self.larger_is_better else "smaller is better"

    def gain(self, difference: float) -> float:
        """A difference with the sign of an improvement."""
        return difference if self.larger_is_better else -difference

    def number(self, value: float | None) -> str:
        """A level without its unit, for columns."""
        if value is None:
            return "-"
        return f"{self.scale * value:{'.1f' if self.is_share else '.4g'}}"

    def level(self, value: float | None) -> str:
        return f"{self.number(value)}{' %' if self.is_share else f' {self.unit}' if self.unit else ''}"

    def change(self, difference: float | None, interval: tuple[float, float] | None = None) -> str:
        """A signed difference without its unit, with the digits that it, or its interval, deserves.

        >>> auc = Quantity("auc", "")
        >>> auc.change(0.01923), auc.change(0.00042, (-0.0191, 0.0202)), ACCURACY.change(0.0003, (-0.007, 0.007))
        ('+0.019', '+0.000', '+0.0')
        """
        return "-" if difference is None else self._written(difference, interval or (difference,), "+")

    def range(self, interval: tuple[float, float]) -> str:
        """An interval of a difference, without its unit.

        >>> ACCURACY.range((-0.002, 0.019)), ACCURACY.range((-0.0004, 0.104)), ACCURACY.range((-0.0004, 0.0003))
        ('-0.2 to 1.9', '0.0 to 10.4', '-0.04 to 0.03')
        >>> Quantity("auc", "").range((0.00959, 0.0288))
        '0.010 to 0.029'
        """
        return " to ".join(self._written(end, interval) for end in interval)

    def _written(self, value: float, scale: Sequence[float], sign: str = "") -> str:
        """To two digits of the largest in ``scale``; in points to a tenth, below that to one digit."""
        size, digits = self.scale * max(map(abs, scale)), 1 if self.is_share else 2
        decimals = max(0, digits - 1 - floor(log10(size))) if size >= 1e-9 else 1
        if self.is_share:
            decimals = 1 if size >= 0.05 or size < 0.001 else decimals
        return f"{self.scale * value:{sign}z.{decimals}f}"

    def signed(self, difference: float | None, interval: tuple[float, float] | None = None) -> str:
        """A signed difference with its unit, and with its interval where it is given.

        >>> ACCURACY.signed(0.007), ACCURACY.signed(0.007, (0.001, 0.013))
        ('+0.7 points', '+0.7 points (0.1 to 1.3)')
        """
        spread = "" if interval is None else f" ({self.range(interval)})"
        return f"{self.change(difference, interval)} {self.difference_unit}".rstrip() + spread

    def amount(self, difference: float, interval: tuple[float, float] | None = None) -> str:
        """The size of a difference, with its unit."""
        size = self.change(abs(difference), interval).removeprefix("+")
        return f"{size} {self.difference_unit}".rstrip()

    def margin(self, baseline_level: float | None) -> float | None:
        """The difference below which two methods count as equivalent; None if it cannot be had."""
        if self.is_share:
            return MARGIN
        return RELATIVE_MARGIN * abs(baseline_level) if baseline_level else None


ACCURACY = Quantity()


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


Shares = Sequence[float]

FIXED_GUESS: Mapping[str, float] = {"auc": 0.5, "r2": 0.0}
CLASS_GUESS: Mapping[str, Callable[[Shares], float]] = {
    "accuracy": max,
    "balanced_accuracy": lambda shares: 1 / len(shares),
    "macro_f1": lambda shares: 2 * max(shares) / (1 + max(shares)) / len(shares),
    "perplexity": lambda shares: exp(-fsum(share * log(share) for share in shares if share)),
}
"""What a model reaches, by metric, that has learned nothing but how frequent the classes are."""
BEST: Mapping[str, float] = {"perplexity": 1.0}
"""The best value there is, where it is not 1."""
LEARNED = 0.02
"""A model has learned something that is this share of the way from a constant guess to the best value, or further."""


def chance_level(quantity: Quantity, manifest: Mapping[str, Any]) -> float | None:
    """What a constant guess reaches, from the class counts in ``run.json``; None where that is not known.

    >>> chance_level(ACCURACY, {"classes": ["cat", "dog"], "partition": [[3, 1], [3, 1]]})
    0.75
    >>> chance_level(ACCURACY, {"classes": ["cat", "dog"]})
    0.5
    >>> print(chance_level(Quantity("mae", "", False), {"classes": ["cat", "dog"]}))
    None
    """
    if quantity.name in FIXED_GUESS:
        return FIXED_GUESS[quantity.name]
    guess = CLASS_GUESS.get(quantity.name)
    classes = manifest.get("classes") or ()
    if guess is None or len(classes) < 2:
        return None
    counts = [fsum(column) for column in zip(*manifest.get("partition") or (), strict=True)]
    if len(counts) != len(classes) or not fsum(counts):
        counts = [1.0] * len(classes)
    return guess([count / fsum(counts) for count in counts])


def at_chance(quantity: Quantity, chance: float | None, values: Sequence[float]) -> bool:
    """Whether runs that ended at ``values`` are not shown to be better than a constant guess.

    Their mean must be beyond it by more than two standard errors, and by more than a small share of the way there is.

    >>> at_chance(ACCURACY, 0.1, [0.10, 0.11, 0.09]), at_chance(ACCURACY, 0.1, [0.6, 0.7])
    (True, False)
    """
    if chance is None or not values:
        return False
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0
    least = LEARNED * abs(BEST.get(quantity.name, 1.0) - chance)
    return quantity.gain(fmean(values) - chance) <= max(2 * error, least)
