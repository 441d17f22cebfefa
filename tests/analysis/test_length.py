"""Length or direction: a task whose answer is known, hand-computed curves, and what is said where nothing can be."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ecgr.analysis.comparison import Comparison, compare
from ecgr.analysis.length import FACTORS, length_curve, missing_factors
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.pairs import Split
from ecgr.report.sentences import sentence
from support.quick import examples

Array = NDArray[np.float64]
SIMULATIONS, SEEDS, ROUNDS, SIZE = 100, 10, 15, 12
LRS = (0.5, 0.7, 1.4, 2.0, 2.8)


def train(rng: np.random.Generator, server_lr: float = 1.0, sideways: float = 1.0) -> tuple[Array, Array]:
    """A noisy descent to a known optimum, for all simulations and seeds at once: values and step lengths by round.

    A step goes down the gradient and, by as much again, to a random side; ``sideways`` turns it towards the gradient
    and leaves its length as it was.
    """
    place = rng.normal(1, 0.1, (SIMULATIONS, SEEDS, SIZE))
    values, norms = [], []
    for _ in range(ROUNDS):
        side = rng.normal(0, 1, place.shape)
        side *= np.linalg.norm(place, axis=-1, keepdims=True) / np.linalg.norm(side, axis=-1, keepdims=True)
        plain, turned = place + side, place + sideways * side
        plain *= 0.04 * server_lr
        turned *= np.linalg.norm(plain, axis=-1, keepdims=True) / np.linalg.norm(turned, axis=-1, keepdims=True)
        place = place - turned
        values.append(1 / (1 + (place**2).mean(axis=-1)))
        norms.append(np.linalg.norm(turned, axis=-1))
    return np.stack(values, axis=-1), np.stack(norms, axis=-1)


def summaries(made: tuple[Array, Array], number: int, regulator: str, **more: object) -> list[RunSummary]:
    values, norms = made
    return [
        RunSummary(
            *("fedavg", regulator, seed, tuple(values[number, seed].tolist())),
            step_norms=tuple(norms[number, seed].tolist()),
            **more,  # type: ignore[arg-type]
        )
        for seed in range(SEEDS)
    ]


@pytest.fixture(scope="module")
def simulated() -> list[Comparison]:
    rng = np.random.default_rng(20260707)
    plain = train(rng)
    curve = {lr: train(rng, server_lr=lr) for lr in LRS}
    methods = {
        "longer": train(rng, server_lr=1.5),
        "turned": train(rng, sideways=0.5),
        "both": train(rng, server_lr=1.5, sideways=0.5),
    }
    return [
        compare(
            [
                *summaries(plain, number, "none"),
                *(run for name, made in methods.items() for run in summaries(made, number, name)),
                *(r for lr in LRS for r in summaries(curve[lr], number, "none", role="length", server_lr=lr)),
            ]
        )
        for number in range(SIMULATIONS)
    ]


@pytest.mark.parametrize(("method", "cause"), [("longer", "step length"), ("turned", "direction"), ("both", "both")])
def test_the_cause_of_a_known_effect_is_named(simulated: list[Comparison], method: str, cause: str) -> None:
    pairs = [pair for comparison in simulated for pair in comparison.pairs if pair.regulator == method]
    assert all(pair.verdict == "better" for pair in pairs)
    assert sum(pair.cause == cause for pair in pairs) >= 95


def test_both_parts_add_up_to_the_difference_in_every_seed(simulated: list[Comparison]) -> None:
    for pair in simulated[0].pairs:
        assert pair.split is not None
        assert pair.split.direction is not None
        assert pair.split.length is not None
        parts = zip(pair.split.direction.differences, pair.split.length.differences, strict=True)
        assert [sum(own) for own in parts] == pytest.approx(list(pair.primary.differences))


def run(regulator: str, seed: int, value: float, path: float, **more: object) -> RunSummary:
    return RunSummary("fedavg", regulator, seed, (value,), step_norms=(path,), **more)  # type: ignore[arg-type]


def comparison(value: float, path: float, seeds: int = 10, values: Sequence[float] = (0.5, 0.6, 0.8)) -> Comparison:
    """A curve through (1, 0.5), (2, 0.6) and (4, 0.8), with a little noise of the seed that all runs share."""
    runs = []
    for seed in range(seeds):
        luck = seed / 1000
        runs += [run("none", seed, values[0] + luck, 1.0), run("ecgr", seed, value + luck + seed / 1e5, path)]
        runs += [
            run("none", seed, end + luck, factor, role="length", server_lr=factor)
            for factor, end in zip((2.0, 4.0), values[1:], strict=True)
        ]
    return compare(runs)


class TestTunedApart:
    def tuned(self, own: str, base: str) -> Comparison:
        runs = []
        for seed in range(10):
            luck = seed / 1000
            runs += [run("none", seed, 0.5 + luck, 1.0, tuned=base), run("none", seed, 0.6 + luck, 2.0, role="length")]
            runs.append(run("ecgr", seed, 0.7 + luck + seed / 1e5, 1.0, tuned=own))
        return compare(runs)

    def test_what_is_not_length_may_be_tuning(self) -> None:
        (pair,) = self.tuned("optimizer.lr=0.1", "optimizer.lr=0.03").pairs
        assert (pair.cause, pair.causes) == ("direction", ("direction or tuning",))
        assert "tuned to optimizer.lr=0.1, fedavg to optimizer.lr=0.03" in pair.note
        assert sentence(pair).endswith("by direction or tuning.")

    def test_with_the_same_choice_it_is_direction(self) -> None:
        (pair,) = self.tuned("optimizer.lr=0.1", "optimizer.lr=0.1").pairs
        assert (pair.causes, pair.tuned) == (("direction",), None)
        assert "tuned" not in pair.note


class TestSplit:
    def test_by_hand(self) -> None:
        """On a straight curve, 0.1 for each unit of path, PCHIP is the line itself: 0.7 at a path of 3."""
        split = comparison(value=0.75, path=3.0).pairs[0].split
        assert split is not None
        assert split.direction is not None
        assert split.length is not None
        assert split.ratio == pytest.approx(3.0)
        assert split.length.mean == pytest.approx(0.2)
        assert split.direction.mean == pytest.approx(0.05, abs=1e-4)

    def test_a_part_against_the_difference_is_not_its_cause(self) -> None:
        """Better though its path is shorter than the baseline's would have to be: length works against it."""
        pair = comparison(value=0.65, path=1.5, values=(0.5, 0.4, 0.2)).pairs[0]
        assert (pair.verdict, pair.cause) == ("better", "direction")

    @pytest.mark.parametrize("path", [0.9, 4.1])
    def test_nothing_is_read_from_beyond_the_curve(self, path: float) -> None:
        pair = comparison(value=0.9, path=path).pairs[0]
        assert pair.verdict == "better"
        assert pair.cause is None
        assert pair.split is not None
        assert (pair.split.direction, pair.split.length) == (None, None)
        assert "the curve goes from 1 to 4 times: beyond it in 10 of 10 seeds" in pair.split.reason

    @pytest.mark.parametrize("path", [1.0, 4.0])
    def test_the_ends_belong_to_the_curve(self, path: float) -> None:
        split = comparison(value=0.9, path=path).pairs[0].split
        assert split is not None
        assert split.direction is not None

    def test_only_a_difference_that_was_shown_has_a_cause(self) -> None:
        pair = comparison(value=0.75, path=3.0, seeds=5).pairs[0]
        assert (pair.verdict, pair.cause) == ("too few seeds", None)
        assert pair.split is not None
        assert pair.split.direction is not None

    def test_records_without_step_lengths_have_no_cause(self) -> None:
        runs = [replace(r, step_norms=(None,)) for r in (run("none", 0, 0.5, 1.0), run("ecgr", 0, 0.6, 1.0))]
        assert compare(runs).pairs[0].split == Split(None, None)

    def test_without_a_curve_the_path_is_still_known(self) -> None:
        pair = compare([r for s in range(6) for r in (run("none", s, 0.5, 2.0), run("ecgr", s, 0.6, 3.0))]).pairs[0]
        assert pair.split == Split(3.0, 2.0)
        assert pair.split.ratio == 1.5

    def test_smaller_is_better_has_causes_too(self) -> None:
        found = comparison(value=0.45, path=3.0, values=(0.8, 0.6, 0.5))
        assert found.pairs[0].verdict == "worse"
        assert found.pairs[0].cause == "both"


class TestCurve:
    def curve(self, values: Sequence[float]) -> list[RunSummary]:
        return [
            run("none", seed, value, path, role="length", server_lr=path)
            for seed in (0, 1)
            for path, value in zip((1.0, 2.0, 4.0), values, strict=True)
        ]

    @given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.floats(1, 4))
    @examples(50)
    def test_it_goes_through_its_points_and_never_beyond_two_neighbours(self, values: list[float], at: float) -> None:
        first, *others = self.curve(values)
        curve = length_curve([first], [r for r in others if r.seed == 0])
        assert [curve.value(0, path) for path in (1.0, 2.0, 4.0)] == pytest.approx(values)
        near = values[:2] if at <= 2 else values[1:]
        found = curve.value(0, at)
        assert found is not None
        assert min(near) - 1e-9 <= found <= max(near) + 1e-9

    def test_the_band_covers_what_all_seeds_have(self) -> None:
        curve = comparison(value=0.75, path=3.0).curves[0]
        band = curve.band()
        assert (band[0][0], band[-1][0]) == (1.0, 4.0)
        assert all(low <= mean <= high for _, mean, low, high in band)
        assert curve.factors == (1.0, 2.0, 4.0)

    def test_an_unfinished_point_is_left_out(self) -> None:
        base = RunSummary("fedavg", "none", 0, (0.1, 0.2), step_norms=(1.0, 1.0))
        short = RunSummary("fedavg", "none", 0, (0.3,), step_norms=(2.0,), role="length", server_lr=2.0)
        assert length_curve([base], [short]).knots == {}


class TestMissingFactors:
    def pairs(self, path: float) -> Comparison:
        return compare([r for s in range(3) for r in (run("none", s, 0.5, 1.0), run("ecgr", s, 0.6, path))])

    @pytest.mark.parametrize(
        ("path", "expected"),
        [(1.05, (0.7, 1.4)), (1.9, (1.4, 2.0, 2.8)), (0.6, (0.5, 0.7)), (99.0, FACTORS[2:]), (1.2, (1.4,))],
    )
    def test_the_first_ones_enclose_every_method(self, path: float, expected: tuple[float, ...]) -> None:
        assert missing_factors(self.pairs(path).pairs) == expected

    def test_a_method_without_a_difference_needs_no_curve(self) -> None:
        """One is better with a path of 1.2, the other is not decided and went ten times as far."""
        found = []
        for seed in range(8):
            found += [run("none", seed, 0.5, 1.0), run("better", seed, 0.6 + seed / 1e4, 1.2)]
            found.append(run("open", seed, 0.5 + (-1) ** seed / 10, 10.0))
        assert missing_factors(compare(found).pairs) == (1.4,)

    def test_a_curve_that_falls_short_is_extended(self) -> None:
        found = comparison(value=0.9, path=5.0)
        assert missing_factors(found.pairs, found.curves) == (5.5,)

    def test_a_coarse_curve_is_not_read_and_gets_a_point_between(self) -> None:
        """Points at 1 and 6 times the path: the curve may have risen and fallen between them."""
        runs = [r for s in range(8) for r in (run("none", s, 0.5, 1.0), run("ecgr", s, 0.6 + s / 1e4, 2.0))]
        curve = [run("none", s, 0.4, 6.0, role="length", server_lr=2.88) for s in range(8)]
        found = compare([*runs, *curve])
        split = found.pairs[0].split
        assert split is not None
        assert (found.pairs[0].cause, split.direction) == (None, None)
        assert "6 times apart" in split.reason
        assert missing_factors(found.pairs, found.curves) == (1.7,)
        finer = [run("none", s, 0.55, 2.5, role="length", server_lr=1.7) for s in range(8)]
        found = compare([*runs, *curve, *finer])
        assert missing_factors(found.pairs, found.curves) == (1.3,)
        finest = [run("none", s, 0.52, 1.5, role="length", server_lr=1.3) for s in range(8)]
        found = compare([*runs, *curve, *finer, *finest])
        assert missing_factors(found.pairs, found.curves) == ()
        assert found.pairs[0].cause == "both"

    def test_a_curve_that_reaches_needs_nothing(self) -> None:
        found = comparison(value=0.9, path=3.0)
        assert missing_factors(found.pairs, found.curves) == ()

    def test_it_ends(self) -> None:
        found = comparison(value=0.9, path=500.0)
        assert missing_factors(found.pairs, found.curves) == (8.0,)
