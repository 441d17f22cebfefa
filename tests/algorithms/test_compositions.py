"""Server rules, corrections and shorthands, by hand; what composes with what; the scale of the learning rate.

Numbers are those of `test_golden`: two clients, updates u_A = -0.7689414 and u_B = 0.5 with shares 2/3 and 1/3, mean
MEAN = -0.3459609; every vector is (a, -a), so that one number says everything, and a length is sqrt(2) times it.
"""

import re
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ecgr.algorithms import (
    ALGORITHMS,
    SERVER_RULES,
    Combined,
    Composed,
    DriftCorrection,
    FedAvg,
    FedCM,
    FedDyn,
    FedNova,
    FedProx,
    Plan,
    Population,
    Scaffold,
    Trace,
    Upload,
    compose,
)
from ecgr.algorithms.server_rules import Average, Extrapolation, HeavyBall, Lookahead, NormUnion
from oracles.two_clients import EVERYBODY, MEAN, U_A, U_B, assert_is, signed, uploads_of
from support.problems import TRAINED, flat, same_bits


def uploads(scale: float = 1.0) -> Combined:
    """The round of A and B."""
    parts = [signed(scale * U_A), signed(scale * U_B)]
    return Combined(signed(scale * MEAN), parts, [2 / 3, 1 / 3])


def test_average_by_hand() -> None:
    """w = 1 - 2 MEAN."""
    assert_is(Average(lr=2.0).step(signed(1.0), uploads(), {}, 0.1)[0], 1 - 2 * MEAN)


def test_normalised_momentum_by_hand() -> None:
    """v' = 0.9 * 1 + 0.1 MEAN; the same update again and again gives v = MEAN, not MEAN / 0.1."""
    rule = HeavyBall(momentum=0.9, normalised=True)
    params, state = rule.step(signed(0.0), uploads(), {"velocity": signed(1.0)}, 0.1)
    assert_is(state["velocity"], 0.9 + 0.1 * MEAN)
    assert_is(params, -(0.9 + 0.1 * MEAN))
    assert_is(rule.step(signed(0.0), uploads(), {"velocity": signed(MEAN)}, 0.1)[1]["velocity"], MEAN)


def test_lookahead_by_hand() -> None:
    """m = 0.5. Round 1 from y = w = 0: v = MEAN, w = -MEAN, y = w - 0.5 v = -1.5 MEAN.

    Round 2, the same update: v = 0.5 MEAN + MEAN = 1.5 MEAN, w = y - MEAN = -2.5 MEAN, which is w - v of round 1's
    model, and y = w - 0.75 MEAN = -3.25 MEAN.
    """
    rule = Lookahead(momentum=0.5)
    params, state = rule.step(signed(0.0), uploads(), rule.init(signed(0.0)), 0.1)
    assert_is(params, -1.5 * MEAN)
    assert_is(rule.served(params, state), -MEAN)
    params, state = rule.step(params, uploads(), state, 0.1)
    assert_is(params, -3.25 * MEAN)
    assert_is(rule.served(params, state), -2.5 * MEAN)


def test_extrapolation_by_hand() -> None:
    """sum p |u|^2 = 2 (2 * 0.5912709 + 0.25) / 3 = 0.9550279, |mean|^2 = 2 * 0.1196890 = 0.2393780.

    s = 0.9550279 / (2 * (0.2393780 + 0.001)) = 1.986508: w = -s MEAN, handed out: the mean of 0 and that.
    """
    s = 0.9550279 / (2 * (0.2393780 + 0.001))
    rule = Extrapolation()
    params, state = rule.step(signed(0.0), uploads(), rule.init(signed(0.0)), 0.1)
    assert_is(params, pytest.approx(-s * MEAN, rel=1e-6).expected)
    assert_is(rule.served(params, state), -s * MEAN / 2)


def test_extrapolation_never_shortens_a_step() -> None:
    """Clients that agree: sum p |u|^2 = |mean|^2, the ratio is below 1/2, so s = 1, as averaging to the bit."""
    agreed = Combined(signed(0.3), [signed(0.3), signed(0.3)], [0.5, 0.5])
    rule = Extrapolation()
    assert same_bits(
        rule.step(signed(1.0), agreed, rule.init(signed(1.0)), 0.1)[0], Average().step(signed(1.0), agreed, {}, 0.1)[0]
    )


def test_extrapolations_epsilon_follows_the_square_of_the_learning_rate() -> None:
    """Tenth of the learning rate, tenth of the updates: the same s, where a constant epsilon would make it smaller."""
    rule = Extrapolation(epsilon=0.3)
    first, state = rule.step(signed(0.0), uploads(), rule.init(signed(0.0)), 0.1)
    later, _ = rule.step(signed(0.0), uploads(0.1), state, 0.01)
    np.testing.assert_allclose(later.numpy() * 10, first.numpy(), rtol=1e-6)


def test_nur_by_hand() -> None:
    """Mean length: sqrt(2) (2 * 0.7689414 + 0.5) / 3; the step has it, in the direction of MEAN."""
    params, _ = NormUnion().step(signed(0.0), uploads(), {}, 0.1)
    assert_is(params, (2 * -U_A + U_B) / 3)
    assert float(params.norm()) == pytest.approx(sqrt(2) * (2 * -U_A + U_B) / 3)


def test_scaffold_with_damping_by_hand() -> None:
    """d = 0.5, T = 2, lr = 0.5, momentum 0.5 (a = 2.5), plain update 5, c = 1, c_i = 0.2.

    In units of the gradient: c_i' = 5 / (2.5 * 0.5) - 0.5 (1 - 0.2) = 4 - 0.4 = 3.6; of steps: 5 / 1 - 0.4 = 4.6.
    The gradient, or the step, gets 0.5 (1 - 0.2) = 0.4.
    """
    server, client = {"control": signed(1.0)}, {"control": signed(0.2)}
    trace = Trace(signed(5.0), signed(5.0), steps=2, lr=0.5, momentum=0.5)
    by_gradient, by_steps = Scaffold(damping=0.5, units="gradient"), Scaffold(damping=0.5)
    assert_is(by_gradient.finish(trace, server, client)[0]["control"], 3.6)
    assert_is(by_steps.finish(trace, server, client)[0]["control"], 4.6)
    assert_is(by_gradient.gradient_term(signed(9.0), signed(8.0), server, client), 0.4)
    assert by_gradient.step_term(server, client) is None
    assert by_steps.gradient_term(signed(9.0), signed(8.0), server, client) is None


def test_scaffolds_control_rate_by_hand() -> None:
    """One of ten clients, c = 1 before, its mean displacement per step 3: c' = 1 + 0.4 (3 - 1) = 1.8."""
    payload = {"update": signed(3.0), "steps": torch.tensor(2.0, dtype=torch.float64)}
    for weights in ("examples", "uniform"):
        algorithm = ALGORITHMS["scaffold"](control_rate=0.4, control_weights=weights)
        _, server = compose(algorithm).aggregate(
            flat(0, 0), {"control": signed(1.0)}, [Upload(4, 2, payload)], Population(10, 50), lr=0.5
        )
        assert_is(server["control"], 1.8)


def test_fedcm_by_hand() -> None:
    """Momentum 1/2, a_A = 2.5 (two steps), a_B = 1: sum p a = 2. D = MEAN / (lr 2) at lr 0.1 = 5 MEAN.

    A gradient 1 becomes 0.25 + 0.75 D in the next round; in the first it stays, as there is no D.
    """
    correction = FedCM(alpha=0.25)
    assert correction.direction(signed(1.0), correction.init_server(flat(0, 0)), {}) is None
    algorithm = compose(correction)
    results = uploads_of(algorithm, lr=0.1, momentum=0.5)
    params, server = algorithm.aggregate(flat(0, 0), {}, results, EVERYBODY, 0.1)
    assert_is(params, -MEAN)
    assert_is(server["direction"], 5 * MEAN)
    assert_is(algorithm.direction(signed(1.0), algorithm.broadcast(server), {}), 0.25 + 0.75 * 5 * MEAN)


def test_feddyn_by_hand() -> None:
    """rel 0.4, lr 0.5, no momentum, A of 2 examples and steps, B of 1: weights n / a = 1, 1, so the mean is uniform.

    u = (u_A + u_B) / 2 = -0.1344707; H = u / lr; w = 0 - u - lr H = -2 u = 0.2689414; handed out: -u.
    A's pull is 0.4 / (0.5 * 2) = 0.4, its dual u_A / lr: at w = 1 from the anchor 0.25 it adds 0.4 (1 - 0.25 - u_A).
    """
    algorithm, params = FedDyn(rel=0.4), flat(0, 0)
    mean = (U_A + U_B) / 2
    results, states = [], []
    for client, (examples, update) in enumerate([(2, U_A), (1, U_B)]):
        begun = algorithm.begin(Plan(examples, 0.5, 0.0), {}, algorithm.init_client(params))
        trace = Trace(signed(update), signed(update), steps=examples, lr=0.5, momentum=0.0)
        state, payload = algorithm.finish(trace, {}, begun)
        states.append(state)
        results.append(Upload(client, examples, payload))
    assert_is(states[0]["dual"], U_A / 0.5)
    after, server = algorithm.aggregate(params, algorithm.init_server(params), results, EVERYBODY, 0.5)
    assert_is(after, -2 * mean)
    assert_is(algorithm.served(after, server), -mean)
    begun = algorithm.begin(Plan(2, 0.5, 0.0), {}, states[0])
    assert_is(algorithm.gradient_term(signed(1.0), signed(0.25), {}, begun), 0.4 * (0.75 - U_A))


def test_fedacg_by_hand() -> None:
    """It is the pull 0.002 of FedProx with lookahead 0.85."""
    assert compose(ALGORITHMS["fedacg"]()) == Composed(FedProx(mu=0.002), Lookahead(momentum=0.85))


def test_fedexp_by_hand() -> None:
    assert compose(ALGORITHMS["fedexp"]()) == Composed(FedAvg(), Extrapolation(epsilon=1e-3))


def test_drift_correction_by_hand() -> None:
    expected = Composed(Scaffold(units="gradient", damping=0.5), Lookahead(momentum=0.7))
    assert compose(DriftCorrection()) == expected


def test_there_is_a_case_by_hand_for_every_algorithm_and_every_rule() -> None:
    """Here and in `test_golden`, where momentum, Adam and Yogi go by their papers' names."""
    files = [Path(__file__), Path(__file__).with_name("test_golden.py")]
    names = re.findall(r"^def (test_\w*by_hand\w*)", "".join(file.read_text() for file in files), re.MULTILINE)
    known = {"momentum": "fedavgm", "adam": "fedadam", "yogi": "fedyogi", "exp": "extrapolation"}
    for entry in [*TRAINED, *SERVER_RULES]:
        assert any(name.startswith(f"test_{known.get(entry, entry)}_") for name in names), entry


# Compositions


def test_fednova_under_extrapolation_counts_the_updates_at_their_length_after_its_own_scaling() -> None:
    """a = 2 and 1, so scale 5/3 and parts u_A / 2, u_B: the lengths that the step is a mean of."""
    algorithm = compose(FedNova(), Extrapolation(average=False))
    results = uploads_of(algorithm)
    scaled = [5 / 3 * U_A / 2, 5 / 3 * U_B]
    mean = (2 * scaled[0] + scaled[1]) / 3
    square = 2 * (2 * scaled[0] ** 2 + scaled[1] ** 2) / 3
    stretch = max(1.0, square / (2 * (2 * mean**2 + 1e-3)))
    params, _ = algorithm.aggregate(flat(0, 0), algorithm.init_server(flat(0, 0)), results, EVERYBODY, 1.0)
    assert stretch > 1
    assert_is(params, -stretch * mean)


def test_the_states_of_correction_and_rule_never_meet() -> None:
    class Nosy:
        """A rule whose state has SCAFFOLD's name."""

        def init(self, params: Tensor) -> dict[str, Tensor]:
            return {"control": torch.full_like(params, 7.0)}

        def step(self, params: Tensor, combined: Combined, state: Any, lr: float) -> tuple[Tensor, Any]:
            assert_is(state["control"] * flat(1, -1), 7.0)
            return params - combined.update, state

        def served(self, params: Tensor, state: Any) -> Tensor:
            return params

    algorithm = compose(Scaffold(), Nosy())
    server = algorithm.init_server(flat(0, 0))
    assert same_bits(algorithm.broadcast(server)["control"], flat(0, 0))
    trace = Trace(signed(1.0), signed(1.0), steps=1, lr=1.0, momentum=0.0)
    payload = algorithm.finish(trace, algorithm.broadcast(server), algorithm.init_client(flat(0, 0)))[1]
    _, after = algorithm.aggregate(flat(0, 0), server, [Upload(0, 1, payload)], Population(1, 1), 1.0)
    assert_is(after["control"], 1.0)
    assert set(after) == set(server)
