"""Constructed summaries, one for each thing that a verdict must and must not say."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ecgr.analysis.pairs import Pair
from ecgr.analysis.quantities import ACCURACY, Quantity, at_chance, chance_level
from ecgr.analysis.summaries import METRICS, RunSummary
from ecgr.analysis.verdicts import compare
from ecgr.errors import ConfigError
from support.quick import examples

MAE = Quantity("mae", "years", larger_is_better=False)
NOISE = (0.0010, -0.0008, 0.0003, -0.0012, 0.0006, -0.0002, 0.0009, -0.0005, 0.0004, -0.0007)


def runs(
    gain: float,
    seeds: int = 10,
    *,
    level: float = 0.6,
    metric: Quantity = ACCURACY,
    chance: float | None = None,
    slopes: tuple[float, float] = (0.0, 0.0),
    rounds: int = 20,
    scale: float = 1.0,
) -> list[RunSummary]:
    """A baseline and a method that ends ``gain`` above it, with a little noise; ``slopes`` by round, to the end."""
    found = []
    for name, added, slope in (("fedavg", 0.0, slopes[0]), ("fedavg+ecgr", gain, slopes[1])):
        for seed in range(seeds):
            end = level + added + (scale * NOISE[seed % 10] if added or name == "fedavg+ecgr" else 0.0)
            curve = tuple(end - slope * (rounds - 1 - number) for number in range(rounds))
            found.append(RunSummary(name, seed, curve, metric=metric, chance=chance))
    return found


def verdict(given: Sequence[RunSummary]) -> Pair:
    (pair,) = compare(given).pairs
    return pair


class TestEnoughSeeds:
    @pytest.mark.parametrize("seeds", range(1, 6))
    def test_twenty_points_in_few_seeds_are_never_no_difference(self, seeds: int) -> None:
        assert verdict(runs(0.2, seeds)).verdict == "too few seeds"

    @pytest.mark.parametrize("seeds", [6, 8, 10])
    def test_with_six_they_are_better(self, seeds: int) -> None:
        assert verdict(runs(0.2, seeds)).verdict == "better"

    def test_a_tenth_of_a_point_in_two_seeds_is_not_equivalent(self) -> None:
        found = [
            *(RunSummary("fedavg", seed, (0.6,)) for seed in (0, 1)),
            *(RunSummary("fedavg+ecgr", seed, (0.6 + gain,)) for seed, gain in ((0, 0.0010), (1, 0.0012))),
        ]
        assert verdict(found).verdict == "too few seeds"


class TestTrained:
    def test_two_arms_at_chance_are_named(self) -> None:
        pair = verdict(runs(0.004, level=0.1, chance=0.1))
        assert (pair.verdict, pair.chance) == ("not trained yet", 0.1)
        assert pair.at_chance == ("fedavg", "fedavg+ecgr")

    def test_equivalent_models_are_above_chance(self) -> None:
        assert verdict(runs(0.0, level=0.1, chance=0.1)).verdict == "not trained yet"
        assert verdict(runs(0.0, level=0.6, chance=0.1)).verdict == "equivalent"
        assert verdict(runs(0.0, level=0.1, chance=None)).verdict == "equivalent"
        pair = verdict(runs(0.0007, level=0.1176, chance=0.1, scale=3))
        assert (pair.verdict, pair.at_chance) == ("not trained yet", ("fedavg",))  # 2 % of the way are 0.018

    def test_one_arm_above_chance_decides(self) -> None:
        assert verdict(runs(0.3, level=0.1, chance=0.1)).verdict == "better"

    def test_worse_than_a_guess_is_not_trained_either(self) -> None:
        assert verdict(runs(0.0, level=0.05, chance=0.1)).verdict == "not trained yet"

    @pytest.mark.parametrize(
        ("name", "larger", "expected"),
        [
            ("accuracy", True, 0.6),
            ("balanced_accuracy", True, 1 / 3),
            ("auc", True, 0.5),
            ("r2", True, 0.0),
            ("macro_f1", True, 2 * 0.6 / 1.6 / 3),
            ("perplexity", False, np.exp(-0.6 * np.log(0.6) - 0.4 * np.log(0.2))),
            ("mae", False, None),
        ],
    )
    def test_what_a_constant_guess_reaches(self, name: str, larger: bool, expected: float | None) -> None:
        """Six, two and two samples of three classes: right in six of ten; F1 of the guess is 2 * 0.6 / (0.6 + 1)."""
        manifest = {"classes": ["a", "b", "c"], "partition": [[4, 1, 2], [2, 1, 0]]}
        assert chance_level(Quantity(name, "", larger), manifest) == (expected and pytest.approx(expected))

    def test_a_perplexity_near_the_guess_is_at_chance(self) -> None:
        perplexity = Quantity("perplexity", "", larger_is_better=False)
        assert at_chance(perplexity, 20.0, [19.8, 20.1])
        assert not at_chance(perplexity, 20.0, [15.1, 15.0])


class TestConverged:
    @pytest.mark.parametrize(
        ("slopes", "rising"),
        [
            ((0.0, 0.0), ()),
            ((0.01, 0.0), ("fedavg",)),
            ((0.0, 0.01), ("fedavg+ecgr",)),
            ((0.01, 0.01), ("fedavg", "fedavg+ecgr")),
            ((-0.01, -0.01), ()),
            ((0.0005, 0.0005), ()),
        ],
    )
    def test_a_curve_that_rises_to_the_end_is_flagged(
        self, slopes: tuple[float, float], rising: tuple[str, ...]
    ) -> None:
        pair = verdict(runs(0.1, slopes=slopes))
        assert pair.rising == rising
        assert ("not converged: more rounds or a larger lr first" in pair.note) == bool(rising)
        assert pair.verdict == "better"

    def test_where_smaller_is_better_a_falling_curve_is(self) -> None:
        pair = verdict(runs(1.0, level=5.0, metric=MAE, slopes=(-0.1, 0.1)))
        assert pair.rising == ("fedavg",)

    def test_noise_is_not_flagged(self) -> None:
        rng = np.random.default_rng(5)
        flagged = 0
        for _ in range(100):
            curves = np.clip(rng.normal(0.6, 0.05, (10, 20)), 0, 1).tolist()
            found = [RunSummary(name, seed, tuple(curves[seed])) for seed in range(10) for name in ("fedavg", "a")]
            flagged += bool(verdict(found).rising)
        assert flagged <= 3

    @pytest.mark.parametrize("rounds", [1, 2, 3])
    def test_few_rounds_are_said(self, rounds: int) -> None:
        pair = verdict(runs(0.02, rounds=rounds))
        assert f"only {rounds} round" in pair.note
        assert pair.description in pair.note


class TestOtherMetrics:
    def test_smaller_is_better(self) -> None:
        assert verdict(runs(-0.5, level=5.0, metric=MAE)).verdict == "better"
        assert verdict(runs(+0.5, level=5.0, metric=MAE)).verdict == "worse"

    def test_the_margin_of_another_unit_is_a_hundredth_of_the_baseline_s_level(self) -> None:
        pair = verdict(runs(0.0, level=5.0, metric=MAE, scale=20))
        assert pair.margin == pytest.approx(0.05)
        assert pair.verdict == "equivalent"
        assert verdict(runs(0.0, level=0.5, metric=MAE, scale=20)).verdict == "inconclusive"

    def test_values_need_not_be_shares(self) -> None:
        assert RunSummary("fedavg", 0, (-3.0, 17.0), metric=MAE).rounds == 2

    def test_best_target_and_rounds_follow_the_direction(self) -> None:
        run = RunSummary("fedavg", 0, (9.0, 5.0, 4.0, 6.0), metric=MAE)
        assert METRICS["best"].measure(run, None) == 4.0
        assert METRICS["rounds_to_target"].measure(run, 5.0) == 2.0
        assert METRICS["best"].describe(MAE).startswith("lowest mae")
        assert METRICS["best"].lower_is_better(MAE)

    def test_a_run_that_diverged_is_named_and_not_left_out(self) -> None:
        found = runs(-0.5, level=5.0, metric=MAE)
        found[-1] = replace(found[-1], values=(*found[-1].values[:-1], None))
        pair = verdict(found)
        assert (pair.verdict, pair.primary.mean) == ("diverged", None)
        assert pair.note == (
            "fedavg+ecgr without a finite mae at the end of seed 9, or without a finite step on the way:"
            " training diverged there"
        )
        assert all(estimate.mean is None for estimate in pair.estimates.values())  # nor is it good by how it began

    def test_a_run_whose_steps_ran_away_diverged_whatever_it_scored(self) -> None:
        found = runs(0.0)
        rounds = found[-1].rounds
        steady = [replace(run, step_norms=(1.0,) * rounds) for run in found]
        assert verdict(steady).verdict != "diverged"
        steady[-1] = replace(steady[-1], step_norms=(1.0,) * (rounds - 1) + (None,))
        assert (verdict(steady).verdict, verdict(steady).diverged) == ("diverged", ("fedavg+ecgr",))

    def test_a_baseline_that_diverged_is_not_blamed_on_the_method(self) -> None:
        found = runs(-0.5, level=5.0, metric=MAE)
        found[0] = replace(found[0], values=(*found[0].values[:-1], None))
        pair = verdict(found)
        assert (pair.verdict, pair.diverged) == ("inconclusive", ("fedavg",))
        assert pair.note.startswith("fedavg without a finite mae at the end of seed 0")

    def test_what_diverged_is_said_to_have_even_where_the_rest_learned_nothing(self) -> None:
        found = runs(0.0, level=0.1, chance=0.1)
        found[-1] = replace(found[-1], values=(*found[-1].values[:-1], None))
        assert verdict(found).verdict == "diverged"

    def test_different_metrics_are_not_compared(self) -> None:
        found = [*runs(0.0)[:10], *runs(0.0, metric=replace(MAE, unit="share"))[10:]]
        with pytest.raises(ConfigError, match=r"different metrics cannot be compared: accuracy .* mae"):
            compare(found)


class TestMethods:
    names = ("fedavg", "fedavg+ecgr", "fedacg", "scaffold(damping=0.5)/lookahead")

    def runs(self) -> list[RunSummary]:
        return [
            RunSummary(name, seed, (0.5 + gain + (NOISE[seed] if name != self.names[3] else 0.0),) * 6)
            for gain, name in zip((0.0, 0.01, 0.02, 0.03), self.names, strict=True)
            for seed in range(10)
        ]

    def test_one_baseline_for_all_fedavg_by_default(self) -> None:
        for runs in (self.runs(), self.runs()[::-1]):
            found = compare(runs)
            assert (found.baseline, found.family) == ("fedavg", 3)
            assert {pair.method for pair in found.pairs} == {*self.names[1:]}
            means = sorted(pair.primary.mean or 0.0 for pair in found.pairs)
            assert means == pytest.approx([0.01, 0.02, 0.03], abs=1e-3)

    def test_any_method_can_be_the_baseline(self) -> None:
        found = compare(self.runs(), "fedacg")
        assert [pair.method for pair in found.pairs] == ["fedavg", "fedavg+ecgr", self.names[3]]
        assert {pair.baseline for pair in found.pairs} == {"fedacg"}

    def test_without_fedavg_it_is_the_first(self) -> None:
        assert compare([run for run in self.runs() if run.method != "fedavg"]).baseline == "fedavg+ecgr"


GAINS = st.lists(st.integers(-300, 300), min_size=6, max_size=9)


class TestProperties:
    """Values on a grid, so that no difference is a matter of rounding."""

    def pair(self, gains: Sequence[float], shift: float = 0.0, scale: float = 1.0, larger: bool = True) -> Pair:
        metric = Quantity("score", "points of a test", larger_is_better=larger)
        return verdict(
            [
                RunSummary(name, seed, (scale * (1024 + gain * (name != "fedavg")) + shift,) * 3, metric=metric)
                for seed, gain in enumerate(gains)
                for name in ("fedavg", "fedavg+ecgr")
            ]
        )

    @given(GAINS, st.integers(-512, 512))
    @examples(40)
    def test_a_shift_of_all_values_moves_no_difference_and_no_p(self, gains: list[int], shift: int) -> None:
        one, other = self.pair(gains).primary, self.pair(gains, shift=shift).primary
        assert (one.differences, one.mean, one.interval) == (other.differences, other.mean, other.interval)
        assert (one.p, one.p_holm, one.dz) == (other.p, other.p_holm, other.dz)

    @given(GAINS, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
    @examples(40)
    def test_a_scale_scales_differences_and_changes_no_verdict(self, gains: list[int], scale: float) -> None:
        one, other = self.pair(gains), self.pair(gains, scale=scale)
        assert one.verdict == other.verdict
        assert one.primary.p == other.primary.p
        assert other.primary.mean == pytest.approx(scale * (one.primary.mean or 0.0))
        assert other.margin == pytest.approx(scale * (one.margin or 0.0))

    @given(GAINS)
    @examples(40)
    def test_the_other_direction_exchanges_better_and_worse(self, gains: list[int]) -> None:
        assume(any(gains))
        exchanged = {"better": "worse", "worse": "better"}
        one, other = self.pair(gains), self.pair(gains, larger=False)
        assert other.verdict == exchanged.get(one.verdict, one.verdict)

    @given(st.randoms())
    @examples(20)
    def test_the_order_of_runs_does_not_matter(self, random: Random) -> None:
        found = [*runs(0.01), *(replace(run, method="fedprox") for run in runs(0.002) if run.method != "fedavg")]
        shuffled = random.sample(found, len(found))
        by_name = [{pair.method: pair for pair in compare(own).pairs} for own in (found, shuffled)]
        assert by_name[0] == by_name[1]
