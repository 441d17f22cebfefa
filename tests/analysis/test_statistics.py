"""The statistics agree with scipy, with slow oracles and with hand-computed cases."""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from ecgr.analysis.statistics import (
    EXACT_PAIRS,
    equivalence_p,
    hedges_dz,
    holm,
    paired_t_interval,
    pairs_needed,
    sign_flip_floor,
    sign_flip_p,
    t_test_power,
)
from ecgr.errors import ConfigError
from support.quick import quick_where

points = st.integers(-500, 500).map(lambda hundredths: hundredths / 100)
samples = st.lists(points, min_size=3, max_size=10)
probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=12)
random_cases = pytest.mark.parametrize("seed", range(20))


def normal_sample(seed: int, least: int = 3, most: int = 12) -> list[float]:
    rng = np.random.default_rng(seed)
    drawn: list[float] = rng.normal(0.3, 1.0, size=rng.integers(least, most)).tolist()
    return drawn


def slow_sign_flip_p(hundredths: Sequence[int]) -> Fraction:
    observed = abs(sum(hundredths))
    flipped = [
        abs(sum(sign * value for sign, value in zip(signs, hundredths, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(hundredths))
    ]
    return Fraction(sum(total >= observed for total in flipped), len(flipped))


def slow_power(pairs: int, dz: float, alpha: float) -> float:
    """Probability of rejection given the sample deviation, averaged over that deviation's distribution."""
    freedom, shift = pairs - 1, dz * math.sqrt(pairs)
    critical = stats.t.ppf(1 - alpha / 2, freedom)

    def rejected(deviation: float) -> float:
        density = math.sqrt(freedom) * stats.chi.pdf(deviation * math.sqrt(freedom), freedom)
        reach = critical * deviation
        return float(density * (stats.norm.sf(reach - shift) + stats.norm.cdf(-reach - shift)))

    return float(integrate.quad(rejected, 0, 8, limit=200)[0])


class TestPairedTInterval:
    @random_cases
    @pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
    def test_agrees_with_scipy(self, seed: int, level: float) -> None:
        differences = normal_sample(seed)
        baseline = np.linspace(0, 1, len(differences))
        expected = stats.ttest_rel(baseline + differences, baseline).confidence_interval(level)
        assert paired_t_interval(differences, level) == pytest.approx((expected.low, expected.high))

    def test_without_spread_is_a_point(self) -> None:
        assert paired_t_interval([0.1 + 0.2, 0.3, 0.3]) == pytest.approx((0.3, 0.3), abs=1e-12)

    def test_covers_at_five_pairs_where_the_bootstrap_does_not(self) -> None:
        """Holds the two numbers that the documentation gives as the reason for the t interval."""
        rng = np.random.default_rng(0)
        data = rng.normal(size=(2000, 5))
        low, high = np.transpose([paired_t_interval(row) for row in data.tolist()])
        resampled = np.take_along_axis(data[:, None, :], rng.integers(0, 5, size=(2000, 1000, 5)), axis=2)
        boot_low, boot_high = np.quantile(resampled.mean(axis=2), [0.025, 0.975], axis=1)
        assert np.mean((low <= 0) & (high >= 0)) == pytest.approx(0.95, abs=0.015)
        assert np.mean((boot_low <= 0) & (boot_high >= 0)) == pytest.approx(0.83, abs=0.02)


class TestSignFlipP:
    @random_cases
    def test_agrees_with_scipy(self, seed: int) -> None:
        differences = normal_sample(seed)
        expected = stats.permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True
        )
        assert sign_flip_p(differences) == pytest.approx(expected.pvalue)

    @given(st.lists(st.integers(-30, 30), min_size=1, max_size=8))
    def test_equals_enumeration_in_whole_numbers_despite_ties_zeros_and_rounding(self, values: list[int]) -> None:
        assert sign_flip_p([value / 30 for value in values]) == float(slow_sign_flip_p(values))

    def test_by_hand(self) -> None:
        """3, 1, -1: the sum is 3; the 8 sums +-3+-1+-1 are 5, 3, 3, 1 and mirrored, 6 are as far: 3/4."""
        assert sign_flip_p([3, 1, -1]) == 0.75

    @given(samples)
    def test_symmetric_never_below_the_floor_and_blind_to_scale_and_order(self, differences: list[float]) -> None:
        p = sign_flip_p(differences)
        assert sign_flip_floor(len(differences)) <= p <= 1
        assert sign_flip_p([-value for value in differences]) == p
        assert sign_flip_p([value / 7 for value in differences]) == p
        assert sign_flip_p(differences[::-1]) == p

    @given(samples)
    def test_a_zero_difference_changes_nothing(self, differences: list[float]) -> None:
        assert sign_flip_p([*differences, 0.0]) == sign_flip_p(differences)

    @pytest.mark.parametrize("pairs", [1, 2, 5, 10, EXACT_PAIRS])
    def test_one_sign_throughout_reaches_the_floor(self, pairs: int) -> None:
        assert sign_flip_p([0.1 * (i + 1) for i in range(pairs)]) == sign_flip_floor(pairs)

    def test_sampling_beyond_enumeration_is_close_repeatable_and_never_zero(self) -> None:
        differences = np.random.default_rng(1).normal(0.4, 1.0, size=EXACT_PAIRS + 10).tolist()
        sampled = sign_flip_p(differences)
        assert sampled == sign_flip_p(differences)
        assert sampled == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.005)
        assert 0 < sign_flip_p([1.0] * 40) <= 1e-5


class TestHolm:
    def test_by_hand(self) -> None:
        """Sorted 0.01, 0.02, 0.03, 0.5 times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.5, already increasing."""
        assert holm([0.03, 0.5, 0.01, 0.02]) == pytest.approx((0.06, 0.5, 0.04, 0.06))

    @given(probabilities)
    def test_between_the_raw_p_and_bonferroni(self, p: list[float]) -> None:
        assert all(raw <= corrected <= min(1, len(p) * raw) for raw, corrected in zip(p, holm(p), strict=True))

    @given(probabilities)
    def test_keeps_the_order(self, p: list[float]) -> None:
        corrected = holm(p)
        order = np.argsort(p, kind="stable")
        assert np.all(np.diff(np.array(corrected)[order]) >= 0)

    @given(probabilities)
    def test_never_rejects_more_than_benjamini_hochberg(self, p: list[float]) -> None:
        assert np.all(np.array(holm(p)) >= stats.false_discovery_control(p) - 1e-12)

    @given(probabilities, st.randoms())
    def test_follows_a_permutation(self, p: list[float], random: Random) -> None:
        places = list(range(len(p)))
        random.shuffle(places)
        assert holm([p[place] for place in places]) == tuple(holm(p)[place] for place in places)

    def test_empty(self) -> None:
        assert holm([]) == ()


class TestHedgesDz:
    def test_by_hand(self) -> None:
        """1 to 5: mean 3, deviation sqrt(2.5); factor G(4/2) / (sqrt(4/2) G(3/2)) = sqrt(2/pi)."""
        expected = math.sqrt(2 / math.pi) * 3 / math.sqrt(2.5)
        assert hedges_dz([1, 2, 3, 4, 5]) == pytest.approx(expected)

    def test_is_unbiased(self) -> None:
        """Over many samples of six with a true effect of 0.8; without the correction it would be 0.95."""
        data = np.random.default_rng(0).normal(0.8, 1.0, size=(20_000, 6)).tolist()
        assert np.mean([hedges_dz(row) or 0.0 for row in data]) == pytest.approx(0.8, abs=0.015)

    @given(samples)
    def test_never_nan_and_odd(self, differences: list[float]) -> None:
        effect = hedges_dz(differences)
        mirrored = hedges_dz([-value for value in differences])
        assert effect is not None
        assert mirrored is not None
        assert not math.isnan(effect)
        assert mirrored == pytest.approx(-effect)

    def test_without_spread(self) -> None:
        assert hedges_dz([0.0] * 5) == 0.0
        assert hedges_dz([0.3, 0.1 + 0.2, 0.3]) == math.inf
        assert hedges_dz([-0.3] * 4) == -math.inf


class TestEquivalenceP:
    @random_cases
    @pytest.mark.parametrize("margin", [0.1, 0.5, 2.0])
    def test_is_the_larger_of_two_one_sided_tests(self, seed: int, margin: float) -> None:
        differences = normal_sample(seed)
        above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
        assert equivalence_p(differences, margin) == pytest.approx(max(above, below))

    @given(samples)
    def test_below_0_05_exactly_if_the_90_percent_interval_lies_within_the_margin(self, sample: list[float]) -> None:
        low, high = paired_t_interval(sample, level=0.9)
        margin = max(-low, high)
        if margin > 0.01:
            assert equivalence_p(sample, margin * 1.001) < 0.05
        if margin > 0.01 and high > low:
            assert equivalence_p(sample, margin * 0.999) > 0.05

    def test_without_spread(self) -> None:
        assert equivalence_p([0.0, 0.0], margin=0.5) == 0.0
        assert equivalence_p([0.5, 0.5], margin=0.5) == 1.0


class TestPairsNeeded:
    @pytest.mark.parametrize(
        ("pairs", "dz", "alpha"),
        quick_where(
            lambda pairs, dz, alpha: (pairs, alpha) == (5, 0.05),
            product([2, 3, 5, 10, 34], [0.0, 0.5, 1.0, 2.0, 5.0], [0.05, 0.01]),
        ),
    )
    def test_power_agrees_with_quadrature(self, pairs: int, dz: float, alpha: float) -> None:
        assert t_test_power(pairs, dz, alpha) == pytest.approx(slow_power(pairs, dz, alpha), abs=1e-6)

    @given(st.floats(0.02, 50), st.sampled_from([0.5, 0.8, 0.95]), st.sampled_from([0.05, 0.0125]))
    def test_is_the_fewest(self, dz: float, power: float, alpha: float) -> None:
        pairs = pairs_needed(dz, power, alpha)
        assert pairs is not None
        assert t_test_power(pairs, dz, alpha) >= power
        assert pairs == 2 or t_test_power(pairs - 1, dz, alpha) < power

    def test_extremes(self) -> None:
        assert pairs_needed(-0.8) == pairs_needed(0.8) == 15
        assert pairs_needed(1e-9) is None
        assert pairs_needed(math.inf) == pairs_needed(-1e300) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: paired_t_interval([1.0]),
        lambda: paired_t_interval([1.0, 2.0], level=1.0),
        lambda: sign_flip_p([]),
        lambda: sign_flip_p([1.0, math.nan]),
        lambda: hedges_dz([math.inf, 1.0, 2.0]),
        lambda: equivalence_p([1.0], margin=0.5),
        lambda: equivalence_p([1.0, 2.0], margin=0.0),
        lambda: holm([0.5, 1.5]),
        lambda: pairs_needed(math.nan),
        lambda: pairs_needed(1.0, power=1.0),
    ],
)
def test_unusable_input_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        call()
