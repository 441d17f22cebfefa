"""From runs to findings: pairing, units and directions, chance, divergence, references."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ecgr.analysis.comparison import compare
from ecgr.analysis.findings import Pair
from ecgr.analysis.quantities import ACCURACY, Quantity, at_chance, chance_level
from ecgr.analysis.summaries import RunSummary
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
    method: str = "fedavg+ecgr",
    scale: float = 1.0,
) -> list[RunSummary]:
    """A flat baseline, and a method that is ``gain`` above it throughout, with a little noise."""
    return [
        RunSummary(name, seed, (level + added,) * 8, metric=metric, chance=chance)
        for seed in range(seeds)
        for name, added in (("fedavg", 0.0), (method, gain + scale * NOISE[seed % 10]))
    ]


def only(given: Sequence[RunSummary]) -> Pair:
    (pair,) = compare(given).pairs
    return pair


class TestPairing:
    def test_only_seeds_with_a_finished_run_on_both_sides_count(self) -> None:
        found = [run for run in runs(0.02) if (run.method, run.seed) not in {("fedavg", 0), ("fedavg+ecgr", 1)}]
        found = [replace(r, values=r.values[:3]) if (r.method, r.seed) == ("fedavg+ecgr", 2) else r for r in found]
        pair = only(found)
        assert pair.seeds == tuple(range(3, 10))
        assert pair.left_out == {0: "no run of fedavg", 1: "no run of fedavg+ecgr", 2: "fedavg+ecgr has 3 of 8 rounds"}

    def test_without_a_baseline_or_a_round_there_is_nothing_to_compare(self) -> None:
        (pair,) = compare([run for run in runs(0.1) if run.method != "fedavg"], "fedavg").pairs
        assert (pair.seeds, pair.difference, pair.verdict) == ((), None, "too few seeds")
        assert only([RunSummary(name, 0, ()) for name in ("fedavg", "scaffold")]).difference is None
        assert compare([]).pairs == ()

    def test_settings_are_never_mixed_and_share_one_correction(self) -> None:
        """Two settings, an end and a speed each: four tests of p = 2/1024."""
        found = compare([replace(run, setting=name) for name in ("a", "b") for run in runs(0.1)])
        assert [(pair.setting, len(pair.seeds)) for pair in found.pairs] == [("a", 10), ("b", 10)]
        assert found.family == 4
        assert found.pairs[0].difference is not None
        assert found.pairs[0].difference.p_holm == pytest.approx(4 * 2 / 1024)

    def test_a_run_given_twice_and_different_metrics_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="fedavg seed 0: given twice"):
            compare([*runs(0.1), *runs(0.1)])
        with pytest.raises(ConfigError, match=r"different metrics cannot be compared: accuracy .* mae"):
            compare([*runs(0.0)[:1], *runs(0.0, metric=replace(MAE, unit="share"))[1:2]])

    def test_fedavg_is_the_baseline_by_default_else_the_first(self) -> None:
        found = [*runs(0.1, method="fedacg")[::-1]]
        assert compare(found).baseline == "fedavg"
        assert [pair.method for pair in compare(found, "fedacg").pairs] == ["fedavg"]
        assert compare([replace(run, method=f"x{run.method}") for run in found]).baseline == "xfedacg"

    @pytest.mark.parametrize("seeds", range(1, 7))
    def test_twenty_points_in_few_seeds_are_too_few_seeds(self, seeds: int) -> None:
        """Two tests: 2 * 2/2^6 is above 0.05."""
        assert only(runs(0.2, seeds)).verdict == "too few seeds"

    def test_the_score_that_counts_is_the_last_rounds(self) -> None:
        base = [RunSummary("fedavg", seed, (0.2, 0.9, 0.5)) for seed in range(3)]
        pair = only([*base, *(RunSummary("a", seed, (0.9, 0.1, 0.6)) for seed in range(3))])
        assert pair.score == pytest.approx(0.6)
        assert pair.baseline_score == 0.5
        assert pair.difference is not None
        assert pair.difference.mean == pytest.approx(0.1)


class TestUnits:
    def test_smaller_is_better(self) -> None:
        pair = only(runs(-0.5, level=5.0, metric=MAE))
        assert pair.verdict == "better"
        assert pair.difference is not None
        assert pair.difference.mean == pytest.approx(-0.5, abs=0.01)
        assert pair.difference.interval is not None
        assert pair.difference.interval[0] < -0.5 < pair.difference.interval[1] < 0
        assert pair.score == pytest.approx(4.5, abs=0.01)
        assert pair.baseline_score == pytest.approx(5.0)
        assert pair.speed is not None
        assert pair.speed.target == pytest.approx(5.0 * 1.01)  # a margin above the baseline's end
        assert only(runs(+0.5, level=5.0, metric=MAE)).verdict == "worse"

    def test_the_margin_of_another_unit_is_a_hundredth_of_the_baselines_level(self) -> None:
        assert only(runs(0.0, level=5.0, metric=MAE, scale=20)).margin == pytest.approx(0.05)
        assert only(runs(0.0, level=5.0, metric=MAE, scale=20)).verdict == "equal"
        assert only(runs(0.0, level=0.5, metric=MAE, scale=20)).verdict == "inconclusive"
        assert only(runs(0.5, level=0.0, metric=MAE)).verdict == "worse"  # of a baseline at zero there is none

    @given(st.lists(st.integers(-300, 300), min_size=8, max_size=9))
    @examples(40)
    def test_the_other_direction_exchanges_better_and_worse(self, gains: list[int]) -> None:
        assume(any(gains))

        def verdict(larger: bool, sign: int) -> str:
            metric = Quantity("score", "marks", larger_is_better=larger)
            values = [(seed, name, 1024.0 + sign * gain * (name == "a")) for seed, gain in enumerate(gains)
                      for name in ("fedavg", "a")]  # fmt: skip
            return only([RunSummary(name, seed, (v,) * 3, metric=metric) for seed, name, v in values]).verdict

        assert verdict(True, 1) == verdict(False, -1)

    @given(st.randoms())
    @examples(20)
    def test_the_order_of_runs_does_not_matter(self, random: Random) -> None:
        found = [*runs(0.01), *(run for run in runs(0.002, method="fedprox") if run.method != "fedavg")]
        shuffled = random.sample(found, len(found))
        by_name = [{pair.method: pair for pair in compare(own).pairs} for own in (found, shuffled)]
        assert by_name[0] == by_name[1]


class TestDiverged:
    @pytest.mark.parametrize("lost", [{"values": (0.6,) * 7 + (None,)}, {"diverged": True}])
    def test_a_score_or_a_step_that_is_not_finite_makes_its_method_diverge(self, lost: dict[str, Any]) -> None:
        found = runs(0.1)
        found[-1] = replace(found[-1], **lost)
        pair = only(found)
        assert (pair.verdict, pair.failed, pair.difference) == ("diverged", (9,), None)

    def test_a_baseline_that_diverged_is_not_blamed_on_the_method(self) -> None:
        found = runs(0.1)
        found[0] = replace(found[0], diverged=True)
        pair = only(found)
        assert (pair.verdict, pair.failed_baseline, pair.difference) == ("inconclusive", (0,), None)


class TestChance:
    def test_of_what_learned_nothing_nothing_is_said(self) -> None:
        pair = only(runs(0.004, level=0.1, chance=0.1))
        assert (pair.verdict, pair.at_chance) == ("inconclusive", ("fedavg", "fedavg+ecgr"))
        assert only(runs(0.0, level=0.6, chance=0.1)).verdict == "equal"
        assert only(runs(0.3, level=0.1, chance=0.1)).verdict == "better"

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


class TestReferences:
    @pytest.mark.parametrize("metric", [ACCURACY, MAE])
    def test_they_are_measured_by_and_not_compared(self, metric: Quantity) -> None:
        """Baseline 0.5, method 0.55, pooled 0.6: half of the gap; for an error, mirrored at 0.5."""
        sign = 1 if metric.larger_is_better else -1
        found = compare(
            [
                RunSummary(name, seed, (0.5 + sign * gain + NOISE[seed],) * 4, metric=metric)
                for seed in range(10)
                for name, gain in (("fedavg", 0.0), ("a", 0.05), ("alone", -0.2), ("pooled", 0.1))
            ]
        )
        assert [pair.method for pair in found.pairs] == ["a"]
        assert found.family == 2
        assert [(reference.name, reference.side) for reference in found.references] == [("alone", -1), ("pooled", 1)]
        assert found.references[1].difference.mean == pytest.approx(sign * 0.1)
        assert found.pairs[0].gap_closed == pytest.approx(0.5)
