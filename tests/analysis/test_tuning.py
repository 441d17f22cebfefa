"""Where hyper-parameters are looked for, and what is chosen."""

import math

import pytest

from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.analysis.tuning import Axis, Scored, choose, extension, first_trials, ranking

LR, STEP = "optimizer.lr", "server.lr"
SPACE = {LR: Axis(0.01, 0.0025, 0.1), STEP: Axis(1.0, 0.5, 2.0), "algorithm.damping": Axis(1.0, 0.2, 1.0, most=1.0)}


def scored(lr: float, *stages: dict[int, float | None]) -> Scored:
    return Scored({LR: lr}, stages)


def test_the_first_trial_is_the_defaults_and_the_others_fill_the_ranges() -> None:
    trials = first_trials(SPACE, 12)
    assert trials[0] == {key: axis.default for key, axis in SPACE.items()}
    assert len(trials) == 12 == len({tuple(trial.values()) for trial in trials})
    for key, axis in SPACE.items():
        values = [trial[key] for trial in trials[1:]]
        assert all(axis.low * 0.99 <= value <= axis.high * 1.01 for value in values)
        middle = math.sqrt(axis.low * axis.high)
        assert 4 <= sum(value < middle for value in values) <= 7  # on a log scale as many below as above


def test_trials_are_the_same_every_time_and_few_are_the_beginning_of_many() -> None:
    assert first_trials(SPACE, 12) == first_trials(SPACE, 12)
    assert first_trials(SPACE, 12)[:5] == first_trials(SPACE, 5)


def test_a_setting_that_diverges_on_any_seed_is_out() -> None:
    tried = [scored(0.1, {100: 0.9, 101: None}), scored(0.01, {100: 0.5, 101: 0.6})]
    assert choose("fedavg", tried).best == {LR: 0.01}
    finals = [scored(0.1, {100: 0.9, 101: 0.9}, {100: 0.9, 101: None}), scored(0.01, {100: 0.5, 101: 0.6})]
    assert choose("fedavg", finals).best == {LR: 0.01}
    assert not choose("fedavg", tried[:1]).trained


def test_those_that_came_furthest_are_chosen_among() -> None:
    tried = [scored(0.1, {100: 0.9}), scored(0.01, {100: 0.8}, {100: 0.7, 101: 0.7})]
    assert choose("fedavg", tried).best == {LR: 0.01}


def test_of_a_loss_the_smallest_is_best_and_of_equals_the_first() -> None:
    tried = [scored(0.1, {100: 2.0}), scored(0.01, {100: 1.0}), scored(0.03, {100: 1.0})]
    loss = Quantity("mae", "", larger_is_better=False)
    assert choose("fedavg", tried, loss).best == {LR: 0.01}
    assert [trial.values[LR] for trial in ranking(tried, loss)] == [0.01, 0.03, 0.1]


def test_how_sure_a_choice_is() -> None:
    """One seed alone speaks for the second: without it the first is chosen."""
    first = scored(0.1, {100: 0.5, 101: 0.8, 102: 0.8, 103: 0.8})
    second = scored(0.2, {100: 0.9, 101: 0.75, 102: 0.75, 103: 0.75})
    choice = choose("fedavg", [first, second])
    assert choice.best == {LR: 0.2}
    assert choice.without == {100: {LR: 0.1}, 101: {LR: 0.2}, 102: {LR: 0.2}, 103: {LR: 0.2}}
    assert choice.agreeing == 3


@pytest.mark.parametrize(("best", "low", "high"), [(0.09, 0.1, 1.0), (0.003, 0.0001, 0.0025)])
def test_a_best_value_at_the_edge_extends_that_side(best: float, low: float, high: float) -> None:
    space = {LR: SPACE[LR], STEP: SPACE[STEP]}
    tried = [Scored({LR: lr, STEP: 1.2}, ({100: 1 - abs(math.log(lr / best))},)) for lr in (0.003, 0.015, 0.09)]
    wider, trials = extension(space, tried, ACCURACY, 4)
    assert len(trials) == 4
    assert all(low <= trial[LR] <= high and trial[STEP] == 1.2 for trial in trials)
    assert (wider[STEP], wider[LR].low <= min(trial[LR] for trial in trials)) == (space[STEP], True)
    assert wider[LR].high >= max(trial[LR] for trial in trials)


def test_a_best_value_inside_or_at_what_is_allowed_extends_nothing() -> None:
    assert extension({LR: SPACE[LR]}, [scored(0.015, {100: 0.9})], ACCURACY, 4) == ({LR: SPACE[LR]}, [])
    damping = {"algorithm.damping": SPACE["algorithm.damping"]}
    assert extension(damping, [Scored({"algorithm.damping": 1.0}, ({100: 0.9},))], ACCURACY, 4) == (damping, [])


def test_where_everything_diverged_smaller_rates_are_tried() -> None:
    _, trials = extension(
        {LR: SPACE[LR], STEP: SPACE[STEP]}, [Scored({LR: 0.01, STEP: 1.0}, ({100: None},))], ACCURACY, 4
    )
    assert len(trials) == 4
    assert all(trial[LR] <= 0.0025 and trial[STEP] == 1.0 for trial in trials)


def test_the_learning_rate_is_extended_before_anything_else() -> None:
    space = {LR: SPACE[LR], STEP: SPACE[STEP]}
    wider, trials = extension(space, [Scored({LR: 0.099, STEP: 1.99}, ({100: 0.9},))], ACCURACY, 4)
    assert wider[STEP] == space[STEP]
    assert all(trial[LR] > 0.099 and trial[STEP] == 1.99 for trial in trials)
