"""What a plan can show, and what the whole pipeline shows where there is nothing to find."""

from math import ceil

import numpy as np
import pytest

from ecgr.analysis.comparison import compare
from ecgr.analysis.power import least_seeds, power_of, seeds_for_effect
from ecgr.analysis.statistics import sign_flip_floor, sign_flip_p, t_test_power
from ecgr.analysis.summaries import RunSummary


class TestPlan:
    @pytest.mark.parametrize(("seeds", "rows"), [(5, 1), (6, 2), (10, 26), (1, 1), (0, 3)])
    def test_a_plan_that_cannot_decide_says_how_many_seeds_would(self, seeds: int, rows: int) -> None:
        power = power_of(seeds, rows)
        assert not power.decides
        assert power.detectable is None
        assert f"{power.least_seeds} seeds are the least" in power.sentence
        assert power_of(power.least_seeds, rows).decides

    @pytest.mark.parametrize(("seeds", "rows"), [(6, 1), (10, 5), (10, 25), (20, 5)])
    def test_a_plan_that_can_says_which_effect_it_finds(self, seeds: int, rows: int) -> None:
        power = power_of(seeds, rows)
        assert power.decides
        assert power.smallest_p == pytest.approx(rows * 2 / 2**seeds)
        assert power.detectable is not None
        assert t_test_power(seeds, power.detectable, 0.05 / rows) >= 0.8 - 1e-3
        assert f"{ceil(10 * power.detectable) / 10:g} times the seed-to-seed spread" in power.sentence

    def test_where_all_signs_must_agree_the_effect_is_larger(self) -> None:
        """Six seeds: p < 0.05 only if all six agree, and 0.8 ** (1/6) is the normal distribution's value at 1.793."""
        assert power_of(6, 1).detectable == pytest.approx(1.793, abs=2e-3)

    def test_the_effect_is_found_as_often_as_said(self) -> None:
        """The sign-flip test itself, at the level that Holm asks of the smallest of five."""
        power = power_of(10, 5)
        assert power.detectable is not None
        rng = np.random.default_rng(3)
        found = [
            sign_flip_p(rng.normal(ceil(10 * power.detectable) / 10, 1, 10).tolist()) < 0.05 / 5 for _ in range(1000)
        ]
        assert 0.75 < np.mean(found) < 0.88

    def test_more_seeds_and_fewer_rows_find_smaller_effects(self) -> None:
        effects = [power_of(seeds, rows).detectable for seeds, rows in ((8, 5), (10, 5), (20, 5), (20, 1))]
        assert effects == sorted((effect for effect in effects if effect is not None), reverse=True)

    def test_the_least_number_of_seeds_is_the_least(self) -> None:
        for rows in (1, 2, 5, 26):
            seeds = least_seeds(rows)
            assert rows * sign_flip_floor(seeds) < 0.05 <= rows * sign_flip_floor(seeds - 1)

    def test_seeds_for_an_effect_can_always_decide(self) -> None:
        assert seeds_for_effect(50.0, rows=10) == least_seeds(10)
        assert seeds_for_effect(None, rows=1) is None


@pytest.mark.slow
def test_where_nothing_differs_a_difference_is_shown_in_at_most_5_percent_of_comparisons() -> None:
    """1,000 comparisons of five methods with a baseline that they share, ten seeds each; any false verdict counts."""
    rng = np.random.default_rng(20260103)
    shown = 0
    for _ in range(1000):
        luck = rng.normal(0.7, 0.02, size=10)
        noise = rng.normal(0, 0.01, size=(6, 10, 3))
        runs = [
            RunSummary(f"method {number}" if number else "fedavg", seed, tuple(curve))
            for number, curves in enumerate(np.clip(luck[None, :, None] + noise, 0, 1).tolist())
            for seed, curve in enumerate(curves)
        ]
        shown += any(pair.verdict in {"better", "worse", "ahead", "behind"} for pair in compare(runs).pairs)
    assert 5 < shown <= 50
