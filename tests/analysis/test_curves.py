"""Constructed curves: each kind of difference is named for what it is, and the error rates are what they should be."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ecgr.analysis.curves import Curves, Estimate, arrival, end, gap_closed, levelled_off, paired, speed, target_of
from ecgr.analysis.findings import Pair, estimate, judge
from ecgr.analysis.statistics import resampled_t

MARGIN = 0.005
SEEDS = range(10)


def curves(plateau: float, scale: float, rounds: int = 120, noise: float = 0.002, stream: int = 0) -> Curves:
    """Exponential approach to a plateau; ``scale`` rounds take it two thirds of the way."""
    rng = np.random.default_rng([7, stream])
    offsets = rng.normal(0, noise, len(SEEDS))
    t = np.arange(1, rounds + 1)
    return {s: (plateau + offsets[s] - 0.8 * np.exp(-t / scale)).tolist() for s in SEEDS}


def only(method: Curves, baseline: Curves, **options: object) -> Pair:
    (pair,) = judge(estimate({"base": baseline, "method": method}, "base", MARGIN, **options))  # type: ignore[arg-type]
    return pair


STEADY = curves(0.9, 10)
SHORT = curves(0.9, 20, rounds=15)
DECAYING, FAILED = {"constant_rate": False}, {"failed": {"method": [3]}}
VERDICTS: dict[str, tuple[Curves, Curves, Mapping[str, object], str, str | None]] = {
    "only better": (curves(0.95, 10, stream=1), STEADY, {}, "better", "sooner"),
    "only worse": (curves(0.85, 10, stream=1), STEADY, {}, "worse", None),
    "crosses, and never arrives": (curves(0.85, 3, stream=1), curves(0.9, 8), {}, "worse", None),
    "the same": (STEADY, STEADY, {}, "equal", None),
    "not levelled off": (curves(0.9, 10, rounds=15, stream=1), SHORT, {}, "ahead", "sooner"),
    "not levelled off, slower": (curves(0.9, 40, rounds=15, stream=1), SHORT, {}, "behind", None),
    "under a decaying schedule": (curves(0.95, 10, stream=1), STEADY, DECAYING, "ahead", "sooner"),
    "noise": (curves(0.9, 10, noise=0.03, stream=1), curves(0.9, 10, noise=0.03), {}, "inconclusive", None),
    "five seeds": ({s: c for s, c in curves(0.95, 10).items() if s < 5}, STEADY, {}, "too few seeds", None),
    "failed on a seed": (curves(0.95, 10, stream=1), STEADY, FAILED, "diverged", None),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_each_kind_of_difference_has_its_word(case: str) -> None:
    method, baseline, options, verdict, sooner = VERDICTS[case]
    pair = only(method, baseline, **options)
    assert (pair.verdict, pair.sooner) == (verdict, sooner)


def test_a_method_that_is_only_faster_is_sooner_and_in_the_end_equal() -> None:
    pair = only(curves(0.9, 5, stream=1, noise=0.001), curves(0.9, 10, noise=0.001))
    assert (pair.verdict, pair.sooner, pair.levelled_off) == ("equal", "sooner", True)
    assert pair.speed is not None
    assert pair.speed.factor == pytest.approx(2.0, rel=0.15)


def test_a_method_that_never_arrives_gets_no_factor_and_is_counted() -> None:
    pair = only(curves(0.6, 10, stream=1), STEADY)
    assert pair.speed is not None
    assert (pair.speed.factor, pair.speed.late) == (None, 10)


def test_a_few_that_do_not_arrive_count_as_arriving_at_the_last_round() -> None:
    base = curves(0.9, 10)
    method = {**curves(0.95, 10, stream=1), 0: [0.1] * 120}
    pair = only(method, base)
    assert pair.speed is not None
    assert pair.speed.late == 1
    assert pair.speed.log is not None
    assert pair.speed.log.differences[0] == pytest.approx(math.log((arrival(base[0], pair.speed.target) or 120) / 120))


def test_the_gap_is_a_share_only_where_there_is_one() -> None:
    base, method, pooled = curves(0.8, 10), curves(0.85, 10, stream=1), curves(0.9, 10, stream=2)
    assert gap_closed(base, method, pooled, MARGIN) == pytest.approx(0.5, abs=0.05)
    assert gap_closed(pooled, method, base, MARGIN) is None


def test_levelled_off_looks_at_the_bound_and_not_at_the_mean() -> None:
    """Seeds that disagree leave the question open though their mean gain is nothing."""
    rng = np.random.default_rng(0)
    flat = {s: [0.5] * 20 + [0.9 + x] * 20 for s, x in enumerate(rng.normal(0, 0.001, 10))}
    assert levelled_off(flat, MARGIN) is False  # the second half begins at round 20, before the rise
    flat = {s: [0.5] * 19 + [0.9] + [0.9 + x] * 20 for s, x in enumerate(rng.normal(0, 0.001, 10))}
    assert levelled_off(flat, MARGIN)
    noisy = {s: [0.9] * 20 + [0.9 + x] * 20 for s, x in enumerate(rng.normal(0, 0.02, 10))}
    assert not levelled_off(noisy, MARGIN)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 1))
def test_arrival_is_the_first_round_at_the_target(curve: list[float], target: float) -> None:
    number = arrival(curve, target)
    reached = [i + 1 for i, score in enumerate(curve) if score >= target]
    assert number == (reached[0] if reached else None)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12))
def test_without_overlap_the_resampled_test_is_students(differences: list[float]) -> None:
    if np.ptp(differences) < 1e-6:
        return
    (low, high), p = resampled_t(differences, 0.0)
    assert p == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=1e-9)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (low, high) == pytest.approx((expected.low, expected.high))


def test_redrawn_splits_widen_the_interval_by_nadeau_and_bengio() -> None:
    differences = [0.01, 0.02, 0.015, 0.03, 0.0]
    plain, wide = Estimate.of(differences), Estimate.of(differences, overlap=0.25)
    assert plain.interval is not None
    assert wide.interval is not None
    ratio = (wide.interval[1] - wide.mean) / (plain.interval[1] - plain.mean)
    assert ratio == pytest.approx(math.sqrt((1 / 5 + 0.25) / (1 / 5)))


def test_end_and_target_by_hand() -> None:
    """Baseline ends 0.50 and 0.60 (mean 0.55), the method 0.60 and 0.65: differences 0.10 and 0.05."""
    base, method = {0: [0.1, 0.5], 1: [0.2, 0.6]}, {0: [0.55, 0.6], 1: [0.5, 0.65]}
    assert end(base, method).differences == pytest.approx((0.10, 0.05))
    assert target_of(base, 0.01) == pytest.approx(0.54)
    found = speed(base, method, 0.01)
    assert found.late_baseline == 1  # seed 0 never gets to 0.54
    assert found.log is None  # half of the seeds are more than a fifth
    assert paired(base, {1: [0.0]}) == [1]
