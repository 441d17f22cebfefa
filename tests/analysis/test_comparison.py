"""Pairing, families, verdicts: golden cases and properties."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.analysis.pairs import Estimate, Pair
from ecgr.analysis.statistics import holm, pairs_needed
from ecgr.analysis.summaries import METRICS, PRIMARY, RunSummary, target_value
from ecgr.analysis.verdicts import compare, primary_verdict
from ecgr.errors import ConfigError
from support.quick import examples

SEEDS = (0, 1, 42, 999, 2025, 3, 4, 5, 6, 7)
CLEAR = (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011)


def runs_of(gains: Sequence[float], setting: str = "", method: str = "fedavg+ecgr") -> list[RunSummary]:
    """A flat baseline run for each seed, and one of the method that is higher by the gain throughout."""
    return [
        RunSummary(name, seed, (0.5 + gain * (name != "fedavg"),) * 6, setting=setting)
        for seed, gain in zip(SEEDS, gains, strict=False)
        for name in ("fedavg", method)
    ]


def only_pair(runs: Sequence[RunSummary]) -> Pair:
    (pair,) = compare(runs).pairs
    return pair


class TestMetrics:
    run = RunSummary(
        "fedavg",
        seed=0,
        values=(0.1, 0.3, 0.8, 0.6, 0.6, 0.7, 0.5),
        worst_client=(0.0, 0.0, None, 0.2, None, 0.4, 0.3),
    )

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("last", 0.5),
            ("last5", (0.8 + 0.6 + 0.6 + 0.7 + 0.5) / 5),
            ("best", 0.8),
            ("area", 3.6 / 7),
            ("rounds_to_target", 3),
            ("worst_client", 0.3),
        ],
    )
    def test_by_hand(self, name: str, expected: float) -> None:
        assert METRICS[name].measure(self.run, 0.55) == pytest.approx(expected)

    def test_every_metric_is_described_and_only_best_is_optimistic(self) -> None:
        assert all(metric.description for metric in METRICS.values())
        assert [name for name, metric in METRICS.items() if metric.optimistic] == ["best"]
        assert PRIMARY == "last5"

    def test_what_a_run_does_not_have_is_none(self) -> None:
        assert METRICS["rounds_to_target"].measure(self.run, 0.81) is None
        assert METRICS["worst_client"].measure(RunSummary("fedavg", 0, (0.5,)), None) is None

    @given(st.lists(st.lists(st.floats(0, 1), min_size=7, max_size=7), min_size=1, max_size=5))
    def test_every_baseline_run_reaches_the_target(self, curves: list[list[float]]) -> None:
        runs = [RunSummary("fedavg", seed, tuple(curve)) for seed, curve in enumerate(curves)]
        target = target_value(runs)
        assert all(METRICS["rounds_to_target"].measure(run, target) is not None for run in runs)

    @pytest.mark.parametrize("values", [(50.0,), (-0.1,), (float("nan"),)])
    def test_an_accuracy_that_is_no_share_is_refused_with_the_run_named(self, values: tuple[float]) -> None:
        with pytest.raises(ConfigError, match=r"fedavg\+ecgr seed 3: accuracy"):
            RunSummary("fedavg+ecgr", 3, values)

    def test_columns_of_different_length_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="2 rounds, worst_client 1"):
            RunSummary("fedavg+ecgr", 3, (0.5, 0.6), (0.5,))


class TestEstimates:
    def test_by_hand(self) -> None:
        """Gains 1, 2, 3 points: mean 2, t interval 2 -+ 2.4841, all signs equal: p = 2/8."""
        estimate = only_pair(runs_of([0.01, 0.02, 0.03])).primary
        assert estimate.differences == pytest.approx((0.01, 0.02, 0.03))
        assert estimate.baseline_mean == pytest.approx(0.5)
        assert estimate.method_mean == pytest.approx(0.52)
        assert estimate.mean == pytest.approx(0.02)
        assert estimate.interval == pytest.approx((-0.004841, 0.044841), abs=1e-6)
        assert estimate.p == estimate.p_holm == 0.25

    def test_each_metric_has_a_holm_family_over_all_pairs_and_settings(self) -> None:
        gains = {"fedavg": CLEAR, "fedprox": (*CLEAR[:9], -0.02), "scaffold": (0.001, -0.001) * 5}
        runs = [
            run
            for setting in ("alpha=0.1", "alpha=1")
            for name, gain in gains.items()
            for run in runs_of(gain, f"{setting}, {name}")
        ]
        comparison = compare(runs)
        assert comparison.family == 6
        for name in ("last5", "last", "best", "area", "rounds_to_target"):
            found = [pair.estimates[name] for pair in comparison.pairs]
            raw = [estimate.p for estimate in found if estimate.p is not None]
            assert [e.p_holm for e in found if e.p is not None] == pytest.approx(holm(raw))

    def test_a_target_never_reached_withholds_the_summary_but_not_the_differences(self) -> None:
        estimate = only_pair(runs_of([0.01, 0.01, -0.01])).estimates["rounds_to_target"]
        assert estimate == Estimate(differences=(0.0, 0.0, None))

    @given(st.lists(st.integers(-100, 100), min_size=2, max_size=8), st.randoms())
    @examples(30)
    def test_the_order_of_runs_does_not_matter(self, hundredths: list[int], random: Random) -> None:
        runs = runs_of([value / 1e4 for value in hundredths])
        shuffled = random.sample(runs, len(runs))
        assert compare(runs).pairs == compare(shuffled, "fedavg").pairs

    @given(st.lists(st.integers(-4000, 4000), min_size=2, max_size=8))
    @examples(30)
    def test_exchanging_the_sides_changes_the_sign_and_nothing_else(self, values: list[int]) -> None:
        runs = runs_of([value / 1e4 for value in values])
        there = compare(runs, baseline="fedavg").pairs[0].primary
        back = compare(runs, baseline="fedavg+ecgr").pairs[0].primary
        assert back.differences == tuple(-value for value in there.differences if value is not None)
        assert (back.p, back.p_equivalent) == (there.p, there.p_equivalent)


class TestVerdicts:
    def test_better_and_worse(self) -> None:
        assert only_pair(runs_of(CLEAR)).verdict == "better"
        assert only_pair(runs_of([-gain for gain in CLEAR])).verdict == "worse"
        assert only_pair(runs_of(CLEAR)).note == ""

    def test_better_but_small(self) -> None:
        pair = only_pair(runs_of([gain / 10 for gain in CLEAR]))
        assert (pair.verdict, pair.note) == ("better", "smaller than 0.5 points")

    @pytest.mark.parametrize("gain", [0.2, 0.01, 0.0001])
    def test_five_seeds_are_too_few_however_large_the_gain(self, gain: float) -> None:
        pair = only_pair(runs_of([gain + seed / 1e6 for seed in range(5)]))
        assert pair.verdict == "too few seeds"
        assert pair.exploratory
        assert pair.primary.p_least == 0.0625
        assert pair.note == (
            "5 seeds cannot show anything among 1 pair: p after Holm is 0.0625 at best, and at least 6 are needed;"
            " exploratory: fewer than 10 seeds"
        )

    def test_two_seeds_are_never_equivalent(self) -> None:
        """+0.10 and +0.12 points: the t test would call that within half a point, two seeds cannot."""
        pair = only_pair(runs_of([0.0010, 0.0012]))
        assert pair.primary.p_equivalent is not None
        assert pair.primary.p_equivalent < 0.05
        assert pair.verdict == "too few seeds"

    def test_equivalence_needs_as_many_seeds_as_a_difference(self) -> None:
        small = (0.001, -0.001, 0.0005, -0.0005, 0.0, 0.0002, -0.0003)
        assert only_pair(runs_of(small[:5])).verdict == "too few seeds"
        assert only_pair(runs_of(small[:6])).verdict == "equivalent"
        in_three = compare([run for name in ("a", "b", "c") for run in runs_of(small[:6], name)])
        assert {pair.verdict for pair in in_three.pairs} == {"too few seeds"}  # 3 * 2/64 > 0.05

    def test_a_larger_family_needs_more_seeds(self) -> None:
        """Six seeds: p = 2/64 = 0.03125 alone, 0.0625 in a family of two."""
        alone = only_pair(runs_of(CLEAR[:6]))
        comparison = compare([*runs_of(CLEAR[:6]), *runs_of(CLEAR[:6], "fedprox")])
        assert alone.verdict == "better"
        assert {pair.verdict for pair in comparison.pairs} == {"too few seeds"}
        assert "at least 7 are needed" in comparison.pairs[0].note

    def test_correction_can_take_the_difference_away(self) -> None:
        """Eight seeds could decide, 5 * 2/256 < 0.05; one difference against the sign, p = 4/256, does not."""
        gains = (0.02, 0.018, 0.022, 0.021, 0.019, 0.017, 0.023, -0.001)
        comparison = compare([run for name in "abcde" for run in runs_of(gains, name)])
        assert {pair.verdict for pair in comparison.pairs} == {"inconclusive"}
        assert "the interval excludes zero, but p = 0.0781 after Holm over 5 pairs" in comparison.pairs[0].note

    def test_one_outlier_of_the_right_sign_is_not_enough(self) -> None:
        """Six gains of one sign have p = 0.03125, but the spread of the last lets the interval include zero."""
        pair = only_pair(runs_of((0.001, 0.001, 0.001, 0.001, 0.001, 0.1)))
        assert pair.verdict == "inconclusive"
        assert pair.note.startswith("p = 0.0312 after Holm, but the interval includes zero")

    def test_equivalent(self) -> None:
        gains = (0.001, -0.001, 0.0005, -0.0005, 0.0) * 2
        assert only_pair(runs_of(gains)).verdict == "equivalent"

    def test_identical_arms_are_named_and_not_equivalent(self) -> None:
        pair = only_pair(runs_of([0.0] * 10))
        assert pair.verdict == "inconclusive"
        assert pair.note == "identical in every seed, to the bit: what sets the methods apart had no effect"
        assert (pair.primary.dz, pair.primary.p, pair.seeds_needed) == (0.0, 1.0, None)

    def test_a_constant_gain_is_a_gain(self) -> None:
        assert only_pair(runs_of([0.02] * 10)).verdict == "better"

    def test_undecided(self) -> None:
        pair = only_pair(runs_of((0.03, -0.03, 0.02, -0.01, 0.01, -0.02, 0.03, -0.01, 0.0, -0.02)))
        assert (pair.verdict, pair.note) == ("inconclusive", "")

    def test_one_pair_is_a_difference_and_no_more(self) -> None:
        pair = only_pair(runs_of([0.02]))
        assert pair.primary.mean == pytest.approx(0.02)
        assert (pair.primary.interval, pair.primary.p, pair.primary.dz) == (None, None, None)
        assert (pair.verdict, pair.note) == ("too few seeds", "one pair tells nothing about chance")
        assert compare(runs_of([0.02])).family == 0

    def test_seeds_needed_is_planned_at_the_corrected_level_and_can_reach_it(self) -> None:
        """Alone: six at least, since 2/2^5 > 0.05. In a family of two p must be below 0.025: seven."""
        weak = only_pair(runs_of((0.03, -0.01, 0.02, -0.015, 0.01, 0.0)))
        assert weak.primary.dz is not None
        assert weak.seeds_needed == pairs_needed(weak.primary.dz)
        assert only_pair(runs_of(CLEAR)).seeds_needed == 6
        both = compare([*runs_of(CLEAR), *runs_of(CLEAR, "fedprox")])
        assert [pair.seeds_needed for pair in both.pairs] == [7, 7]

    @pytest.mark.parametrize(
        ("interval", "p_holm", "p_equivalent", "expected"),
        [
            ((0.01, 0.03), 0.049, 0.9, "better"),
            ((-0.03, -0.01), 0.049, 0.9, "worse"),
            ((0.01, 0.03), 0.05, 0.9, "inconclusive"),
            ((-0.01, 0.03), 0.01, 0.9, "inconclusive"),
            ((0.0, 0.03), 0.01, 0.9, "inconclusive"),
            ((0.001, 0.003), 0.01, 0.01, "better"),
            ((0.001, 0.003), 0.06, 0.01, "equivalent"),
        ],
    )
    def test_rule(self, interval: tuple[float, float], p_holm: float, p_equivalent: float, expected: str) -> None:
        estimate = Estimate(mean=sum(interval) / 2, interval=interval, p_holm=p_holm, p_equivalent=p_equivalent)
        assert primary_verdict(estimate) == expected
        swapped = {"better": "worse", "worse": "better"}
        assert primary_verdict(estimate, larger_is_better=False) == swapped.get(expected, expected)


class TestPairing:
    def test_only_seeds_with_a_finished_run_on_both_sides_count(self) -> None:
        runs = [run for run in runs_of(CLEAR) if (run.method, run.seed) not in {("fedavg", 0), ("fedavg+ecgr", 1)}]
        runs = [
            RunSummary("fedavg+ecgr", 42, (0.9,) * 4) if (run.method, run.seed) == ("fedavg+ecgr", 42) else run
            for run in runs
        ]
        pair = only_pair(runs)
        assert pair.seeds == (3, 4, 5, 6, 7, 999, 2025)
        assert pair.left_out == {0: "no run of fedavg", 1: "no run of fedavg+ecgr", 42: "fedavg+ecgr has 4 of 6 rounds"}
        assert "seed 42 left out (fedavg+ecgr has 4 of 6 rounds)" in pair.note

    def test_without_a_baseline_there_is_nothing_to_compare_and_it_says_so(self) -> None:
        (pair,) = compare([run for run in runs_of(CLEAR) if run.method != "fedavg"], "fedavg").pairs
        assert (pair.seeds, pair.target, pair.verdict) == ((), None, "too few seeds")
        assert pair.note.startswith("no seed has a finished run on both sides; seeds 0, 1, 3")

    def test_runs_without_a_round_yet(self) -> None:
        pair = only_pair([RunSummary(name, 0, ()) for name in ("fedavg", "scaffold")])
        assert pair.left_out == {0: "fedavg has 0 of 0 rounds and scaffold has 0 of 0 rounds"}

    def test_settings_are_never_mixed(self) -> None:
        comparison = compare([run for setting in ("a", "b") for run in runs_of(CLEAR, setting)])
        assert [(pair.setting, pair.method) for pair in comparison.pairs] == [
            ("a", "fedavg+ecgr"),
            ("b", "fedavg+ecgr"),
        ]
        assert all(len(pair.seeds) == 10 for pair in comparison.pairs)

    def test_every_method_meets_the_same_baseline_and_target(self) -> None:
        runs = {(run.method, run.seed): run for run in (*runs_of(CLEAR), *runs_of(CLEAR, method="scaffold"))}
        ecgr, scaffold = compare(runs.values()).pairs
        assert (ecgr.method, scaffold.method) == ("fedavg+ecgr", "scaffold")
        assert ecgr.target == scaffold.target == pytest.approx(0.5)

    def test_a_run_given_twice_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="fedavg seed 0: given twice"):
            compare([*runs_of(CLEAR), *runs_of(CLEAR)])

    def test_nothing_at_all(self) -> None:
        assert compare([]).pairs == ()
