"""What a number of seeds and rows can show at all, said before anything is run."""

import itertools
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist

from ecgr.analysis.quantities import count
from ecgr.analysis.statistics import pairs_needed, sign_flip_floor, t_test_power

ALPHA = 0.05
LEAST_RESAMPLED = 5
"""Seeds below which redrawn splits show nothing: no p-value has a floor there, but the variance is hardly known."""
POWER = 0.8
"""Probability with which an effect that is there should be found."""
LARGEST = 64.0
"""Effects beyond this many spreads are not worth naming."""


@dataclass(frozen=True, slots=True)
class Power:
    """What ``rows`` tests, an end and a speed for each method, with ``seeds`` seeds each can show.

    ``smallest_p`` is the smallest p-value after Holm; ``detectable`` the effect that is found with a probability of
    ``POWER`` where it is the only one, in units of the seed-to-seed spread of the paired differences, or None where
    no effect can be; ``least_seeds`` the fewest seeds that can show anything.
    """

    seeds: int
    rows: int
    smallest_p: float
    detectable: float | None
    least_seeds: int

    @property
    def decides(self) -> bool:
        """Whether a verdict is possible."""
        return self.smallest_p < ALPHA

    @property
    def sentence(self) -> str:
        """For a person, before anything is run."""
        given = f"{count(self.seeds, 'seed')} and {count(self.rows, 'test')}"
        if not self.decides:
            return (
                f"{given} cannot decide: p after Holm cannot fall below {min(1.0, self.smallest_p):.2g};"
                f" {self.least_seeds} seeds are the least{', 10 are better' if self.least_seeds < 10 else ''}."
            )
        effect = (
            f"an effect of {ceil(10 * self.detectable) / 10:g} times the seed-to-seed spread is found in about"
            f" {100 * POWER:.0f} % of cases"
            if self.detectable is not None
            else "only an effect far beyond the seed-to-seed spread is found"
        )
        floor = f" (p after Holm from {self.smallest_p:.2g})" if self.smallest_p else ""
        return f"{given} can decide: {effect}, a much smaller one likely not{floor}."


def power_of(seeds: int, rows: int, overlap: float | None = None) -> Power:
    """What ``seeds`` paired seeds and ``rows`` tests in one Holm family can show.

    With ``overlap``, the ratio of test to training samples where the split is redrawn with the seed, p has no floor
    but a few seeds tell nothing, and effects are found by the corrected resampled t test.

    >>> print(power_of(seeds=10, rows=4).sentence)
    10 seeds and 4 tests can decide: an effect of 1.3 times the seed-to-seed spread is found in about 80 % of
    cases, a much smaller one likely not (p after Holm from 0.0078).
    >>> print(power_of(seeds=5, rows=1).sentence)
    5 seeds and 1 test cannot decide: p after Holm cannot fall below 0.062; 6 seeds are the least, 10 are better.
    """
    rows = max(1, rows)
    smallest, least, wider = min(1.0, rows * sign_flip_floor(seeds)), least_seeds(rows), 1.0
    if overlap is not None:
        smallest, least, wider = float(seeds < LEAST_RESAMPLED), LEAST_RESAMPLED, sqrt(1 + overlap * seeds)
    found = _detectable(seeds, ALPHA / rows) if smallest < ALPHA else None
    return Power(seeds, rows, smallest, None if found is None else wider * found, least)


def least_seeds(rows: int) -> int:
    """The fewest seeds with which a sign-flip test can decide in a family of ``rows``.

    >>> [least_seeds(rows) for rows in (1, 2, 5, 20)]
    [6, 7, 8, 10]
    """
    return next(seeds for seeds in itertools.count(1) if max(1, rows) * sign_flip_floor(seeds) < ALPHA)


def seeds_for_effect(dz: float | None, rows: int) -> int | None:
    """Seeds for a verdict with ``POWER`` at an effect of ``dz``, after the correction over ``rows``.

    Planned at the level that Holm asks of the smallest p-value; the sign-flip test must be able to reach it.

    >>> seeds_for_effect(5.0, rows=1), seeds_for_effect(1.0, rows=1), seeds_for_effect(0.0, rows=1)
    (6, 10, None)
    """
    if dz is None or (pairs := pairs_needed(dz, POWER, ALPHA / max(1, rows))) is None:
        return None
    return max(pairs, least_seeds(rows))


def _detectable(seeds: int, alpha: float) -> float | None:
    """The effect that is found with ``POWER`` at this level: by the interval, and by the sign flips.

    The sign-flip test is close to the t test but where only one pattern of signs is rare enough: then all differences
    must agree in sign.
    """
    from scipy.optimize import brentq  # slow to import

    def lacking(effect: float) -> float:
        chance = t_test_power(seeds, effect, alpha)
        if 2 * sign_flip_floor(seeds) > alpha:
            chance = min(chance, NormalDist().cdf(effect) ** seeds)
        return POWER - chance

    return None if lacking(LARGEST) > 0 else float(brentq(lacking, 0.0, LARGEST))
