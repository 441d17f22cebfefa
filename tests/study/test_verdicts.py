"""Verdicts on the paper's claims follow their rules, at the edges too."""

from typing import Any

import pytest
from study.claims import verdict_on_choice, verdict_on_direction
from study.collapse import has_collapsed, verdict_on_collapse, verdict_on_reason
from study.positions import outside
from study.verdicts import Judge, agrees, combine, gain, gains, gains_a_point, gains_nothing, loses

from ecgr.analysis.comparison import Estimate, Pair
from ecgr.analysis.metrics import PRIMARY


def estimate(low: float, high: float, *, p: float = 1.0, p_equivalent: float = 1.0) -> Estimate:
    return Estimate(mean=(low + high) / 2, interval=(low, high), p_holm=p, p_equivalent=p_equivalent)


def pair(found: Estimate, verdict: str = "not decided") -> Pair:
    return Pair("", "fedavg", "ecgr", "none", (0, 1), {}, None, {PRIMARY: found}, verdict=verdict)  # type: ignore[arg-type]


BETTER, WORSE = estimate(0.001, 0.02, p=0.01), estimate(-0.02, -0.001, p=0.01)
EQUIVALENT, OPEN = estimate(-0.004, 0.004, p_equivalent=0.01), estimate(-0.02, 0.02)


@pytest.mark.parametrize(
    ("rule", "verdicts"),
    [
        (gains_a_point, ("shown", "contradicted", "contradicted", "not shown")),
        (gains, ("shown", "contradicted", "contradicted", "not shown")),
        (loses, ("contradicted", "shown", "contradicted", "not shown")),
        (gains_nothing, ("contradicted", "shown", "shown", "not shown")),
        (agrees, ("not shown", "not shown", "shown", "not shown")),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_rules(rule: Judge, verdicts: tuple[str, ...]) -> None:
    assert tuple(map(rule, (BETTER, WORSE, EQUIVALENT, OPEN))) == verdicts


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (gains_a_point, -0.02, 0.0099, "contradicted"),
        (gains_a_point, -0.02, 0.0101, "not shown"),
        (gains_a_point, 0.001, 0.02, "not shown"),  # the interval excludes zero, but p does not allow it
        (gains_nothing, -0.02, 0.0099, "shown"),
        (gains_nothing, -0.02, 0.0101, "not shown"),
        (agrees, -0.0099, 0.0099, "shown"),
        (agrees, -0.0101, 0.0099, "not shown"),
        (agrees, 0.01, 0.03, "contradicted"),
        (agrees, -0.03, -0.01, "contradicted"),
    ],
)
def test_the_rules_at_their_edges(rule: Judge, low: float, high: float, verdict: str) -> None:
    assert rule(estimate(low, high)) == verdict


@pytest.mark.parametrize(
    ("own", "matched", "verdict"),
    [
        (BETTER, BETTER, "shown"),
        (BETTER, OPEN, "not shown"),
        (BETTER, EQUIVALENT, "contradicted"),
        (OPEN, EQUIVALENT, "not shown"),  # no gain to explain
        (WORSE, EQUIVALENT, "not shown"),
        (BETTER, None, "not shown"),
    ],
)
def test_the_rule_for_direction(own: Estimate, matched: Estimate | None, verdict: str) -> None:
    assert verdict_on_direction(pair(own), pair(matched) if matched else None) == verdict


@pytest.mark.parametrize(
    ("own", "against_ecgr", "verdict"),
    [
        ("better", ["worse", "worse"], "shown"),
        ("better", ["worse", "not decided"], "not shown"),
        ("better", ["worse", "equivalent"], "contradicted"),
        ("better", ["better", "worse"], "contradicted"),
        ("not decided", ["worse"], "not shown"),
        ("not decided", ["equivalent"], "not shown"),
        ("better", [], "not shown"),
    ],
)
def test_the_rule_for_the_choice_of_steps(own: str, against_ecgr: list[str], verdict: str) -> None:
    assert verdict_on_choice(pair(BETTER, own), [pair(OPEN, other) for other in against_ecgr]) == verdict


COLLAPSED: dict[str, Any] = {
    "config": {"data.name": "cifar10"},
    "smallest_variance": [0.1, 0.1, -2.0, 0.1, -9.0],
    "accuracy": [0.3, 0.3, 0.1, 0.3, 0.1],
}
HEALTHY = {**COLLAPSED, "smallest_variance": [0.1] * 5, "accuracy": [0.3] * 5}


def test_the_rules_for_the_collapse() -> None:
    assert has_collapsed(COLLAPSED)
    assert not has_collapsed(HEALTHY)
    assert not has_collapsed({**COLLAPSED, "accuracy": [0.3] * 5})
    assert verdict_on_collapse([COLLAPSED] * 12, [HEALTHY]) == "shown"
    assert verdict_on_collapse([COLLAPSED, HEALTHY], [HEALTHY]) == "not shown"
    assert verdict_on_collapse([COLLAPSED], [COLLAPSED, HEALTHY]) == "not shown"
    assert verdict_on_collapse([HEALTHY], [HEALTHY]) == "contradicted"
    assert verdict_on_collapse([], [HEALTHY]) == verdict_on_collapse([COLLAPSED], []) == "not measured"
    assert verdict_on_reason([HEALTHY]) == "contradicted"
    assert verdict_on_reason([HEALTHY, COLLAPSED]) == "not shown"
    assert verdict_on_reason([]) == "not measured"


def test_rounds_outside_of_random_choices_are_counted() -> None:
    curve = {"mean": [0.9, 0.5, 0.1, 0.8], "chance_low": [0.4] * 4, "chance_high": [0.6] * 4}
    assert outside(curve) == (0.5, 0.25)
    assert outside(curve, slice(-2, None)) == (0.5, 0.5)


def test_one_seed_has_a_difference_and_no_interval() -> None:
    alone = pair(Estimate(mean=0.0123))
    assert gain(alone) == "+1.23 (one seed: no interval)"
    assert gains_a_point(alone.primary) == "not shown"


def test_verdicts_of_several_settings_are_counted_where_they_differ() -> None:
    assert combine(["shown", "contradicted", "contradicted"]) == "contradicted 2, shown 1"
