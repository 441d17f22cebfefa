"""Statistics of paired differences that can be trusted with few seeds.

Pure functions of the differences "regulated minus baseline", one a seed. The interval and the equivalence
test are Student's, the p-value is that of Fisher's exact sign-flip test, the correction is Holm's, the effect
size is Cohen's d_z as corrected by Hedges. Formulas and reasons: ``docs/reference/statistics.md``.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ecgr.errors import ConfigError

EXACT_PAIRS = 20
"""Up to this many pairs every sign flip is enumerated; beyond it a fixed sample is drawn."""
MONTE_CARLO_FLIPS = 99_999
MOST_PAIRS = 2**20
"""More pairs than this are not worth naming."""
ROUNDING = 1e-9
"""Relative size below which two sums, or all differences, count as equal."""

Vector = NDArray[np.float64]


def paired_t_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's confidence interval of the mean difference, from two pairs on.

    >>> low, high = paired_t_interval([1.0, 2.0, 3.0])
    >>> f"{low:.3f} to {high:.3f}"
    '-0.484 to 4.484'
    """
    return resampled_t(differences, 0.0, level)[0]


def resampled_t(differences: Sequence[float], overlap: float, level: float = 0.95) -> tuple[tuple[float, float], float]:
    """Interval of the mean and two-sided p-value where splits are redrawn with the seed and so share samples.

    The corrected resampled t test (Nadeau and Bengio, 2003): the variance of the mean is that of the differences times
    ``1/n + overlap``, with ``overlap`` the ratio of test to training samples. With no overlap it is the paired t test.

    >>> (low, high), p = resampled_t([1.0, 2.0, 3.0], overlap=0.25)
    >>> f"{low:.3f} to {high:.3f}, p = {p:.3f}"
    '-1.286 to 5.286, p = 0.120'
    """
    _check_share("level", level)
    values = _finite(differences, least=2)
    mean, error = _mean_and_error(values, overlap)
    freedom = len(values) - 1
    reach = float(special.stdtrit(freedom, (1 + level) / 2)) * error
    if error == 0:
        return (mean, mean), float(mean == 0)
    return (mean - reach, mean + reach), float(2 * special.stdtr(freedom, -abs(mean) / error))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p-value of the sign-flip test: how often random signs give a sum at least as far from zero.

    Exact up to ``EXACT_PAIRS`` pairs. Beyond, ``MONTE_CARLO_FLIPS`` flips are drawn from a generator of its
    own with a fixed seed, and the observed signs counted among them: valid, and the same every time. Sums
    that differ by rounding alone are ties and count; a zero difference changes no sum.

    >>> sign_flip_p([1.0, 2.0, 3.0, 4.0, 5.0])
    0.0625
    >>> sign_flip_p([1.0, 2.0, -3.0])
    1.0
    """
    values = _finite(differences, least=1)
    as_far = abs(values.sum()) - ROUNDING * np.abs(values).sum()
    if len(values) <= EXACT_PAIRS:
        return float(np.mean(np.abs(_all_sums(values)) >= as_far))
    hits = np.count_nonzero(np.abs(_sampled_sums(values)) >= as_far)
    return float((hits + 1) / (MONTE_CARLO_FLIPS + 1))


def sign_flip_floor(pairs: int) -> float:
    """The smallest p-value that the exact sign-flip test can give.

    >>> sign_flip_floor(5)
    0.0625
    """
    return min(1.0, 2.0 ** (1 - pairs))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction, in the order given: valid for any dependence between the tests.

    >>> holm([0.25, 0.0625, 0.125])
    (0.25, 0.1875, 0.25)
    """
    p = _finite(p_values, least=0)
    if np.any((p < 0) | (p > 1)):
        raise ConfigError(f"p_values: {list(p_values)} are not all between 0 and 1")
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return tuple(corrected.tolist())


def hedges_dz(differences: Sequence[float]) -> float | None:
    """Mean over standard deviation of the differences, with Hedges' exact correction for small samples.

    None below three pairs, where the correction is not defined. Differences without spread give 0.0 if they
    are all zero, else plus or minus infinity.

    >>> round(hedges_dz([1.0, 2.0, 3.0, 4.0, 5.0]), 4)
    1.5139
    >>> hedges_dz([0.0, 0.0, 0.0]), hedges_dz([1.0, 1.0, 1.0]), hedges_dz([1.0, 2.0])
    (0.0, inf, None)
    """
    values = _finite(differences, least=1)
    freedom = len(values) - 1
    if freedom < 2:
        return None
    mean, error = _mean_and_error(values)
    if error == 0:
        return math.copysign(math.inf, mean) if mean else 0.0
    correction = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    return correction * mean / (error * math.sqrt(len(values)))


def equivalence_p(differences: Sequence[float], margin: float, overlap: float = 0.0) -> float:
    """P-value of two one-sided t tests (TOST): small if the mean is shown to lie within ``margin`` of zero.

    Differences without spread give 0.0 inside the margin and 1.0 on or outside it; ``overlap`` as in `resampled_t`.

    >>> equivalence_p([0.1, -0.1, 0.2, -0.2, 0.0], margin=1.0) < 0.001
    True
    >>> equivalence_p([2.0, 2.0], margin=1.0)
    1.0
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ConfigError(f"margin: {margin} is not a positive number")
    values = _finite(differences, least=2)
    mean, error = _mean_and_error(values, overlap)
    excess = abs(mean) - margin
    if error == 0:
        return float(excess >= 0)
    return float(special.stdtr(len(values) - 1, excess / error))


def pairs_needed(dz: float, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Fewest pairs with which a two-sided paired t test finds an effect of ``dz`` with this power.

    Exact, from the noncentral t distribution. None if more than ``MOST_PAIRS`` would be needed.

    >>> [pairs_needed(dz) for dz in (2.0, 1.5, 1.0, 0.8, 0.5)]
    [5, 6, 10, 15, 34]
    >>> print(pairs_needed(0.0))
    None
    """
    _check_share("power", power)
    _check_share("alpha", alpha)
    if math.isnan(dz):
        raise ConfigError("dz: not a number")
    enough = 2
    while t_test_power(enough, dz, alpha) < power:
        if enough >= MOST_PAIRS:
            return None
        enough *= 2
    counts = range(max(2, enough // 2), enough)
    return counts.start + bisect_left(counts, True, key=lambda n: t_test_power(n, dz, alpha) >= power)


def t_test_power(pairs: int, dz: float, alpha: float = 0.05) -> float:
    """Probability that a two-sided paired t test rejects if the true effect is ``dz``.

    >>> round(t_test_power(pairs=10, dz=1.0), 3)
    0.803
    """
    if math.isinf(dz):
        return 1.0
    freedom = pairs - 1
    critical = float(special.stdtrit(freedom, 1 - alpha / 2))
    shift = abs(dz) * math.sqrt(pairs)
    # nctdtr answers NaN for some probabilities too small to matter
    below, beyond = np.nan_to_num(special.nctdtr(freedom, shift, [critical, -critical]))
    return float(1 - below + beyond)


def _all_sums(values: Vector) -> Vector:
    """Every sum with free signs but the first one's, which by symmetry makes no two-sided difference."""
    sums = values[:1]
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _sampled_sums(values: Vector) -> Vector:
    rng = np.random.default_rng(0)
    sums = np.zeros(MONTE_CARLO_FLIPS)
    for value in values:
        sums += value * (2 * rng.integers(0, 2, size=MONTE_CARLO_FLIPS, dtype=np.int8) - 1)
    return sums


def _mean_and_error(values: Vector, overlap: float = 0.0) -> tuple[float, float]:
    """Mean and its standard error; the latter exactly zero if the values differ by rounding alone."""
    if not (math.isfinite(overlap) and overlap >= 0):
        raise ConfigError(f"overlap: must be 0 or more, got {overlap}")
    mean = math.fsum(values) / len(values)
    if np.ptp(values) <= ROUNDING * np.abs(values).max():
        return mean, 0.0
    return mean, float(values.std(ddof=1)) / math.sqrt(len(values)) * math.sqrt(1 + overlap * len(values))


def _finite(numbers: Sequence[float], least: int) -> Vector:
    values = np.asarray(numbers, dtype=np.float64)
    if values.ndim != 1 or len(values) < least or not np.isfinite(values).all():
        raise ConfigError(f"expected at least {least} finite numbers, got {numbers!r}")
    return values


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigError(f"{name}: {value} is not between 0 and 1")
