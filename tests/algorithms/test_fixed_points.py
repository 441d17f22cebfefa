"""Where algorithms end on two unlike quadratics, in closed form; what the learning rate's scale does to them.

Client i has the loss k_i / 2 (w - b_i)^2 and takes T_i steps of learning rate h without momentum. One step multiplies
w - b_i by 1 - h k_i, so a round's update is u_i = (1 - r_i) (w - b_i) with r_i = (1 - h k_i)^T_i. Wherever a method's
updates can be written as q_i (w - b_i), its fixed point is sum p_i q_i b_i / sum p_i q_i. The minimiser of the whole
objective is that of q_i = k_i.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, FedAvg, FedCM, FedDyn, FedNova, FedProx, Scaffold, compose
from ecgr.algorithms.base import Correction
from oracles.federated import Line, TwoVectorScaffold, play
from support.problems import same_bits

A = Line(examples=30, steps=6, curvature=2.0, centre=1.0)
B = Line(examples=10, steps=3, curvature=0.5, centre=-3.0)
LR = 0.05


def fixed_point(weight: Callable[[Line], float]) -> float:
    """``sum p q b / sum p q``."""
    weights = [client.examples * weight(client) for client in (A, B)]
    return sum(q * client.centre for q, client in zip(weights, (A, B), strict=True)) / sum(weights)


def left(client: Line, lr: float = LR, pull: float = 0.0) -> float:
    """r, what a round leaves of the distance to where the client is drawn."""
    return float((1 - lr * (client.curvature + pull)) ** client.steps)


MINIMISER = fixed_point(lambda client: client.curvature)


def damped(d: float) -> float:
    """The fixed point of SCAFFOLD with damping d, from its conditions (w, c_A, c_B, u_A, u_B unknown, c = sum p c_i).

    The gradient gets e_i = d (c - c_i), which moves the client's centre to b_i - e_i / k_i;
    a control comes out as it went in; the model stays:

        u_i = (1 - r_i) (w - b_i + e_i / k_i),    c_i = u_i / (h T_i) - e_i,    sum p_i u_i = 0.
    """
    clients, rows, right = (A, B), [], []
    p = np.array([client.examples for client in clients]) / sum(client.examples for client in clients)
    w, c, u = np.eye(5)[0], np.eye(5)[1:3], np.eye(5)[3:5]
    for i, client in enumerate(clients):
        correction, drawn = d * (p @ c - c[i]), 1 - left(client)
        rows += [u[i] - drawn * (w + correction / client.curvature), c[i] - u[i] / (LR * client.steps) + correction]
        right += [-drawn * client.centre, 0.0]
    return float(np.linalg.solve(np.array([*rows, p @ u]), np.array([*right, 0.0]))[0])


CLOSED: Mapping[str, tuple[Correction, float]] = {
    "fedavg": (FedAvg(), fixed_point(lambda c: 1 - left(c))),
    "fednova": (FedNova(), fixed_point(lambda c: (1 - left(c)) / c.steps)),
    # the pull mu draws to w as k draws to b: u = (1 - r) k / (k + mu) (w - b), r with k + mu
    "fedprox": (FedProx(mu=0.5), fixed_point(lambda c: (1 - left(c, pull=0.5)) * c.curvature / (c.curvature + 0.5))),
    # at the fixed point D = 0, and what is left is FedAvg with alpha times the learning rate
    "fedcm": (FedCM(alpha=0.3), fixed_point(lambda c: 1 - left(c, lr=0.3 * LR))),
    "scaffold": (Scaffold(), MINIMISER),
    "scaffold, damped": (Scaffold(damping=0.5), damped(0.5)),
    "scaffold, gradient units, damped": (Scaffold(damping=0.5, units="gradient"), damped(0.5)),
    "scaffold, hardly damped": (Scaffold(damping=0.99), damped(0.99)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_the_fixed_point_is_the_one_of_the_closed_form(name: str) -> None:
    correction, expected = CLOSED[name]
    assert float(play(compose(correction), [A, B], [LR] * 300).served) == pytest.approx(expected, abs=1e-8)


def test_the_closed_forms_differ_and_damping_leads_from_fedavg_to_the_minimiser() -> None:
    points = [damped(d) for d in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert points[0] == pytest.approx(CLOSED["fedavg"][1])
    assert points[-1] == pytest.approx(MINIMISER)
    distances = [abs(point - MINIMISER) for point in points]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("correction", [FedDyn(), FedDyn(rel=1.0), Scaffold(units="gradient")], ids=repr)
def test_what_removes_drift_ends_at_the_minimiser_whatever_the_steps(correction: Any, momentum: float) -> None:
    """Unlike examples and steps; FedDyn's weights n_i / a_i make its duals those of the example-weighted objective.

    SCAFFOLD in units of steps does so without momentum alone: with it, the correction acts from the first step on and
    the gradients' full weight comes later, so that a client leaves the fixed point and comes back to it.
    """
    end = play(compose(correction), [A, B], [0.02] * 800, momentum=momentum)
    assert float(end.served) == pytest.approx(MINIMISER, abs=1e-6)


@pytest.mark.parametrize("rule", sorted(set(SERVER_RULES) - {"adam", "yogi", "exp", "nur"}))
def test_a_server_rule_changes_the_way_and_not_the_end(rule: str) -> None:
    """Those apart whose steps do not shrink with the mean update while clients disagree."""
    point = CLOSED["fedavg"][1]
    assert float(play(compose(FedAvg(), SERVER_RULES[rule]()), [A, B], [LR] * 300).served) == pytest.approx(
        point, abs=1e-6
    )


def test_drift_correction_ends_where_its_scaffold_does_with_momentum_too() -> None:
    whole = play(compose(ALGORITHMS["drift_correction"]()), [A, B], [LR] * 300)
    assert float(whole.served) == pytest.approx(damped(0.5), abs=1e-8)


# One client: nothing to correct


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    "correction",
    [FedAvg(), FedNova(), Scaffold(), Scaffold(damping=0.5), Scaffold(units="gradient", damping=0.5)],
    ids=repr,
)
def test_one_client_is_centralised_sgd(correction: Correction, momentum: float) -> None:
    """Rounds of T steps, the momentum buffer made anew in each, as `SGD` does on the one loss there is."""
    end = play(compose(correction), [A], [LR] * 4, momentum=momentum)
    w = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    for _ in range(4):
        sgd = torch.optim.SGD([w], lr=LR, momentum=momentum)
        for _ in range(A.steps):
            w.grad = A.gradient(w.detach())
            sgd.step()
    assert float(end.params) == pytest.approx(float(w.detach()), rel=1e-12)


# The scale of the learning rate


class Slope(Line):
    """A linear loss: the gradient is the centre everywhere."""

    def gradient(self, w: Any) -> Any:
        return torch.full_like(w, self.centre)


SLOPES = [Slope(30, 6, 0.0, 1.3), Slope(10, 3, 0.0, -3.7), Slope(5, 4, 0.0, 0.7)]
SCALE_FREE: Sequence[str] = ["fedavg", "fednova", "scaffold", "fedcm", "feddyn", "fedavgm", "drift_correction"]
"""Without FedProx, whose mu has a unit, and so FedACG; Adam, Yogi and FedExP have an epsilon or tau with one."""


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", SCALE_FREE)
def test_twice_the_learning_rate_on_linear_losses_is_twice_the_way_and_the_same_controls(
    name: str, momentum: float
) -> None:
    """Also where it decays from round to round, and where clients are absent: powers of two are exact."""
    algorithm = compose(ALGORITHMS[name]())
    absent = [[], [1], [0], []]
    rates = [0.125, 0.0625, 0.0625, 0.03125]
    one = play(algorithm, SLOPES, rates, momentum=momentum, absent=absent)
    two = play(algorithm, SLOPES, [2 * lr for lr in rates], momentum=momentum, absent=absent)
    assert torch.equal(2 * one.params, two.params)
    assert torch.equal(2 * one.served, two.served)
    for mine, other in zip(one.clients, two.clients, strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[key], other[key]) for key in mine)
    for key in one.server:
        if not key.startswith("rule/") and key != "lr":
            assert torch.equal(one.server[key], two.server[key]), key


# SCAFFOLD with one vector


@pytest.mark.parametrize("uniform", [False, True])
def test_scaffold_with_one_vector_is_scaffold_with_two_to_the_bit(uniform: bool) -> None:
    absent = [[], [1], [0], [], [0, 2]]
    one = Scaffold(control_weights="uniform" if uniform else "examples")
    single, double = (
        play(compose(each), [*SLOPES, A, B], [LR] * 5, momentum=0.9, absent=absent)
        for each in (one, TwoVectorScaffold(uniform))
    )
    assert same_bits(single.params, double.params)
    assert same_bits(single.server["control"], double.server["control"])
    assert all(same_bits(a["control"], b["control"]) for a, b in zip(single.clients, double.clients, strict=True))


@pytest.mark.parametrize("units", ["steps", "gradient"])
def test_the_servers_copy_of_a_damped_control_is_the_clients_to_the_bit(units: Any) -> None:
    """Also where clients are absent; and c stays the weighted mean of all c_i."""
    absent = [[], [1], [0], [], [0, 2], [3, 4, 1]]
    end = play(compose(Scaffold(damping=0.3, units=units)), [*SLOPES, A, B], [LR] * 6, momentum=0.9, absent=absent)
    for i, own in enumerate(end.clients):
        assert same_bits(end.server[f"control of client {i}"], own["control"])
    examples = [client.examples for client in (*SLOPES, A, B)]
    mean = sum(n * float(own["control"]) for n, own in zip(examples, end.clients, strict=True)) / sum(examples)
    assert float(end.server["control"]) == pytest.approx(mean, rel=1e-9)
