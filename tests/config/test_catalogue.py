"""The catalogue of methods: complete, and its costs are those of a real round."""

from itertools import product
from typing import Any

import pytest

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.config.catalogue import WHEN, Cost, cost_of
from ecgr.config.methods import Method, parse_method
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import play_round, start
from ecgr.tasks.losses import LOSSES
from support.problems import TRAINED, blobs, offer, problem, small_net
from support.quick import quick_where


def test_every_algorithm_rule_and_variant_of_a_loss_is_in_it_under_its_own_name() -> None:
    settings = [parse_method(notation) for notation in WHEN]
    assert {each["algorithm.name"] for each in settings} == set(ALGORITHMS)
    shorthands = {"adam": "fedadam", "yogi": "fedyogi", "exp": "fedexp", "lookahead": "fedacg"}
    assert {shorthands.get(rule, rule) for rule in SERVER_RULES} <= {
        *(each["server.name"] for each in settings),
        *(each["algorithm.name"] for each in settings),
    }
    variants = {name for name in LOSSES if hasattr(LOSSES[name], "evaluation")}
    assert {each["loss.name"] for each in settings if "loss.name" in each} == variants
    assert [Method.of(notation).name for notation in WHEN] == list(WHEN)


@pytest.mark.parametrize(
    ("method", "cost"),
    [
        ("fedacg", Cost(1, 1, 1, 0, 1, 0, 1)),
        ("scaffold", Cost(1, 2, 2, 1, 1, 0, 1)),
        ("scaffold+ecgr", Cost(2, 2, 2, 1, 1, 0, 1)),
        ("drift_correction", Cost(1, 2, 2, 1, 2, 1, 1)),
        ("fedcm", Cost(1, 1, 2, 0, 1, 0, 1)),
        ("feddyn", Cost(1, 2, 1, 1, 1, 0, 1)),
        ("fedadam", Cost(1, 1, 1, 0, 2, 0, 1)),
        ("fedavg[fedntd]", Cost(1, 1, 1, 0, 0, 0, 2)),
    ],
)
def test_costs_by_hand(method: str, cost: Cost) -> None:
    assert cost_of(Method.of(method)) == cost


@pytest.mark.parametrize(
    ("name", "regulator"),
    quick_where(
        lambda name, regulator: name == "scaffold" or regulator == "none", product(sorted(TRAINED), ["none", "ecgr"])
    ),
)
def test_the_record_of_a_round_counts_the_same_bytes(
    name: str, regulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second round of two clients: vectors of the model's size and its buffers; scalars are a few bytes more."""
    offer(monkeypatch, net=small_net)
    sections: dict[str, Any] = {"algorithm": {"name": name}, "regulator": {"name": regulator}, "model": {"name": "net"}}
    one = problem(blobs(24), [range(12), range(12, 24)], **sections, federation={"batch_size": 4})
    engine = SerialEngine(one)
    row = play_round(one, engine, play_round(one, engine, start(one)).snapshot).row
    cost = cost_of(Method.of(f"{name}+{regulator}"))
    buffers = sum(b.numel() * b.element_size() for b in start(one).buffers.values())
    up, down = (row[f"bytes_{way}"] / 2 - buffers for way in ("up", "down"))
    assert 0 <= up - 4 * one.spec.size * cost.up <= 16
    assert 0 <= down - 4 * one.spec.size * cost.down <= 16
