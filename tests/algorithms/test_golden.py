"""One round of every algorithm, by hand, on a model of two parameters.

**The model.** Scores are (w0 x, w1 x) for a one-pixel image x, the loss is cross-entropy, both weights start at 0.
Every image is white, x = 1. By symmetry w = (a, -a) throughout, so one number a says everything. With
s(z) = 1 / (1 + exp(-z)), the probability of class 0 is s(2a), and the gradient with respect to (w0, w1) is

    label 0:  (-(1 - s(2a)), +(1 - s(2a)))        label 1:  (+s(2a), -s(2a)).

A step with learning rate 1 therefore does  a <- a + 1 - s(2a)  for label 0 and  a <- a - s(2a)  for label 1.

**The clients**, batch size 1, momentum 0:  A has two images of class 0 (two steps), B one image of class 1 (one step).

    A:  a = 0 -> 0 + 1 - s(0) = 0.5 -> 0.5 + 1 - s(1) = 0.5 + 0.2689414213699951 = 0.7689414213699951
    B:  a = 0 -> 0 - s(0) = -0.5

The updates (start - end), first component:  u_A = -0.7689414213699951,  u_B = +0.5.  Shares p_A = 2/3, p_B = 1/3.
"""

from collections.abc import Mapping, Sequence
from math import exp, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ecgr.algorithms import (
    ALGORITHMS,
    Entry,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedNova,
    FedProx,
    FedYogi,
    Plan,
    Population,
    Scaffold,
    Trace,
    Upload,
    compose,
)
from ecgr.simulation.client import ClientJob, train_client
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import Snapshot, play_round, start
from ecgr.simulation.workspace import Problem, Workspace
from oracles.federated import Client, momentum_weights, scaffold
from oracles.two_clients import EVERYBODY, MEAN, U_A, U_B, assert_is, signed, uploads_of
from support.problems import blobs, flat, one_pixel, problem, same_bits, small_net, two_parameters


def s(z: float) -> float:
    return 1 / (1 + exp(-z))


def world(algorithm: Mapping[str, Any], **sections: Mapping[str, Any]) -> Problem:
    """Clients A and B as above; keyword arguments are config sections."""
    settings: dict[str, Mapping[str, Any]] = {
        "model": {"name": two_parameters},
        "regulator": {"name": "none"},
        "optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.0},
        "federation": {"rounds": 3, "batch_size": 1},
        **sections,
        "algorithm": algorithm,
    }
    return problem(one_pixel([255, 255, 255], [0, 0, 1]), [[0, 1], [2]], **settings)


def played(task: Problem, rounds: int = 1) -> Snapshot:
    snapshot, engine = start(task), SerialEngine(task)
    for _ in range(rounds):
        snapshot = play_round(task, engine, snapshot).snapshot
    return snapshot


def aggregated(entry: Entry, server: Any = None) -> tuple[Tensor, Any]:
    """One aggregation of A's and B's uploads."""
    params, algorithm = flat(0, 0), compose(entry)
    before = algorithm.init_server(params) if server is None else server
    return algorithm.aggregate(params, before, uploads_of(entry, before), EVERYBODY, 1.0)


def test_the_two_updates_are_those_of_the_derivation() -> None:
    """Also with momentum 0.9: A's second displacement is 0.2689… + 0.9 * 0.5, so u_A = -(0.5 + 0.7189…)."""
    task = world({"name": "fedavg"})
    snapshot = start(task)
    expected = {0: U_A, 1: U_B}
    for client, update in expected.items():
        job = ClientJob(client, 0, 1.0, 1, snapshot.params, snapshot.buffers, {}, {})
        result, state = train_client(job, Workspace(task))
        assert_is(result.payload["update"], update)
        assert result.steps == [2, 1][client]
        assert result.examples == [2, 1][client]
        assert state == {}
    heavy = world({"name": "fedavg"}, optimizer={"name": "sgd", "lr": 1.0, "momentum": 0.9})
    result, _ = train_client(ClientJob(0, 0, 1.0, 1, snapshot.params, {}, {}, {}), Workspace(heavy))
    assert_is(result.payload["update"], -(0.5 + 1 - s(1) + 0.9 * 0.5))


def test_the_training_loss_is_the_mean_over_samples_before_each_step() -> None:
    """A: -log s(0) = log 2 at a = 0, then -log s(1) at a = 0.5."""
    task = world({"name": "fedavg"})
    snapshot = start(task)
    result, _ = train_client(ClientJob(0, 0, 1.0, 1, snapshot.params, {}, {}, {}), Workspace(task))
    assert result.train_loss == pytest.approx((np.log(2) - np.log(s(1))) / 2, rel=1e-6)


def test_the_training_loss_weighs_batches_by_their_samples() -> None:
    """Labels 0, 0, 1 in batches of 2 and 1 at w = (1, -1), lr next to nothing: (2 * -log s(2) + -log s(-2)) / 3."""
    task = problem(
        one_pixel([255, 255, 255], [0, 0, 1]),
        [[0, 1, 2]],
        model={"name": two_parameters},
        optimizer={"name": "sgd", "lr": 1e-9},
        federation={"batch_size": 2},
    )
    result, _ = train_client(ClientJob(0, 0, 1e-9, 1, flat(1, -1), {}, {}, {}), Workspace(task))
    assert result.steps == 2
    assert result.train_loss == pytest.approx(-(2 * np.log(s(2)) + np.log(s(-2))) / 3, rel=1e-6)


# FedAvg: w = -(2/3 u_A + 1/3 u_B) = (2 * 0.7689414 - 0.5) / 3 = 0.3459609


def test_fedavg_by_hand() -> None:
    """w <- 0 - (2 u_A + u_B) / 3, so a = 0.3459609475799967."""
    assert_is(aggregated(FedAvg())[0], 0.3459609475799967)
    assert_is(played(world({"name": "fedavg"})).params, 0.3459609475799967)


def test_fedavg_with_a_server_learning_rate_by_hand() -> None:
    """Half the step: a = 0.17298047."""
    assert_is(aggregated(FedAvg(server_lr=0.5))[0], 0.3459609475799967 / 2)
    assert_is(played(world({"name": "fedavg", "server_lr": 0.5})).params, 0.3459609475799967 / 2)


def test_fedprox_by_hand() -> None:
    """mu = 0.1: the gradient gets mu (w - 0) = (0.1 a, -0.1 a), so a <- a + 1 - s(2a) - 0.1 a.

    A:  0 -> 0.5 -> 0.5 + 0.2689414213699951 - 0.05 = 0.7189414213699951.   B:  0 -> -0.5 (at a = 0 the term is 0).
    a = (2 * 0.7189414213699951 - 0.5) / 3 = 0.3126276142466634.
    """
    assert_is(played(world({"name": "fedprox", "mu": 0.1})).params, 0.3126276142466634)
    assert_is(FedProx(mu=0.1).gradient_term(signed(0.5), signed(0.0), {}, {}), 0.05)
    assert_is(aggregated(FedProx())[0], 0.3459609475799967)


def test_fednova_by_hand() -> None:
    """a_A = 2, a_B = 1. Normalised: u_A / 2 = -0.38447071, u_B = 0.5.

    Mean: (2 * -0.3844707106849976 + 0.5) / 3 = -0.0896471404566650.  Effective steps: 2/3 * 2 + 1/3 * 1 = 5/3.
    a = 5/3 * 0.0896471404566650 = 0.1494119007611084.
    """
    uploads = uploads_of(FedNova(normalizer="steps"))
    assert_is(uploads[0].payload["update"], -0.3844707106849976)
    assert float(uploads[0].payload["effective_steps"]) == 2.0
    assert_is(aggregated(FedNova(normalizer="steps"))[0], 0.1494119007611084)
    assert_is(played(world({"name": "fednova", "normalizer": "steps"})).params, 0.1494119007611084)


def test_fednova_with_momentum_normaliser_by_hand() -> None:
    """Momentum 1/2. A: steps 0.5, then 0.2689414 + 0.25, so u_A = -1.0189414213699951; u_B = 0.5.

    a_A: the first gradient enters 1 + 1/2 times, the second once: 2.5.  a_B = 1.
    Normalised: -0.4075765685479980, 0.5; mean (2 * -0.4075765685479980 + 0.5) / 3 = -0.1050510456986653.
    Effective steps: (2 * 2.5 + 1) / 3 = 2.  a = 0.2101020913973307.
    """
    optimizer = {"name": "sgd", "lr": 1.0, "momentum": 0.5}
    task = world({"name": "fednova"}, optimizer=optimizer)
    assert_is(played(task).params, 0.2101020913973307)


def test_scaffold_by_hand() -> None:
    """First round: c = c_i = 0, so the model moves as FedAvg's, to a = 0.3459609475799967.

    c_A' = 0 - 0 + u_A / (2 * 1) = -0.3844707106849976,  c_B' = u_B / 1 = 0.5,
    c' = 0 + 2/3 c_A' + 1/3 c_B' = -0.0896471404566650.
    """
    snapshot = played(world({"name": "scaffold"}))
    assert_is(snapshot.params, 0.3459609475799967)
    assert_is(snapshot.server["control"], -0.0896471404566650)
    assert_is(snapshot.clients[0]["control"], -0.3844707106849976)
    assert_is(snapshot.clients[1]["control"], 0.5)


def test_scaffold_in_its_second_round_by_hand() -> None:
    """B in round 2, from a = 0.34596095: gradient +s(2a) = s(0.6919219), correction c - c_B = -0.0896471 - 0.5.

    a <- a - (s(2a) - 0.5896471404566650); then c_B' = c_B - c + (start - end) / 1 = s(2a): with one step, the variate
    is the gradient at the global model.
    """
    task = world({"name": "scaffold"})
    first = played(task)
    job = ClientJob(1, 1, 1.0, 1, first.params, first.buffers, first.clients[1], Scaffold().broadcast(first.server))
    result, state = train_client(job, Workspace(task))
    gradient = s(2 * 0.3459609475799967)
    assert_is(result.payload["update"], gradient - 0.5896471404566650)
    assert_is(dict(state)["control"], gradient)


def test_fedavgm_by_hand() -> None:
    """First round v = mean, as FedAvg. With v = (1, -1) before: v' = 0.9 + MEAN = 0.5540390524, a = -0.5540390524."""
    assert_is(played(world({"name": "fedavgm"})).params, 0.3459609475799967)
    params, server = aggregated(FedAvgM(server_momentum=0.9), {"rule/velocity": signed(1.0)})
    assert_is(params, -0.5540390524200033)
    assert_is(server["rule/velocity"], 0.5540390524200033)


def test_fedadam_by_hand() -> None:
    """u = MEAN = -0.34596095, u^2 = 0.1196889773; server_lr 0.01, beta1 0.9, beta2 0.99, tau 0.001, no bias correction.

    m = 0.9 * 0 + 0.1 u = -0.03459609475799967
    v = 0.99 * 1e-6 + 0.01 u^2 = 0.00000099 + 0.001196889773 = 0.001197879773
    a = 0.01 * 0.03459609475799967 / (sqrt(0.001197879773) + 0.001) = 0.00971524
    """
    v = 0.99e-6 + 0.01 * MEAN**2
    a = 0.01 * 0.03459609475799967 / (sqrt(v) + 0.001)
    assert v == pytest.approx(0.001197879773, rel=1e-8)
    assert a == pytest.approx(0.00971524, rel=1e-5)
    params, server = aggregated(FedAdam())
    assert_is(params, a)
    assert_is(server["rule/mean"], 0.1 * MEAN)
    np.testing.assert_allclose(server["rule/square"].numpy(), [v, v], rtol=2e-6)
    assert_is(played(world({"name": "fedadam"})).params, a)


def test_fedyogi_by_hand() -> None:
    """As FedAdam, but v = tau^2 - 0.01 u^2 sign(tau^2 - u^2) = 1e-6 + 0.001196889773 = 0.001197889773, as u^2 > tau^2.

    With v = 1 before and u^2 = 0.1197 < 1 the sign is the other: v' = 1 - 0.001196889773 = 0.998803110227.
    """
    v = 1e-6 + 0.01 * MEAN**2
    a = 0.01 * 0.03459609475799967 / (sqrt(v) + 0.001)
    params, server = aggregated(FedYogi())
    assert_is(params, a)
    np.testing.assert_allclose(server["rule/square"].numpy(), [v, v], rtol=2e-6)
    assert_is(played(world({"name": "fedyogi"})).params, a)
    _, large = aggregated(FedYogi(), {"rule/mean": flat(0, 0), "rule/square": flat(1, 1)})
    np.testing.assert_allclose(large["rule/square"].numpy(), [0.998803110227] * 2, rtol=1e-6)


def test_ecgr_on_collinear_steps_is_plain_training() -> None:
    """All of A's steps are multiples of (-1, 1): damping some changes the length alone, and the length is restored."""
    plain = played(world({"name": "fedavg"})).params
    regulated = played(world({"name": "fedavg"}, regulator={"name": "ecgr", "beta": 0.0})).params
    assert torch.allclose(plain, regulated, rtol=1e-6)


# Relations between algorithms


def nets(algorithm: Mapping[str, Any], parts: Sequence[Sequence[int]] | None = None, **sections: Any) -> Problem:
    """Three clients of 8, 4 and 12 images in batches of 4, on a model with BatchNorm."""
    settings: dict[str, Any] = {
        "model": {"name": small_net},
        "regulator": {"name": "ecgr"},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        "federation": {"rounds": 3, "batch_size": 4},
        **sections,
        "algorithm": algorithm,
    }
    return problem(blobs(24), parts or [range(8), range(8, 12), range(12, 24)], **settings)


@pytest.mark.parametrize("regulator", ["none", "ecgr"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_in_its_first_round_is_fedavg_to_the_bit(regulator: str, momentum: float) -> None:
    sections: dict[str, Any] = {
        "regulator": {"name": regulator},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": momentum},
    }
    one, other = (played(nets({"name": name}, **sections)) for name in ("fedavg", "scaffold"))
    assert same_bits(one.params, other.params)


@pytest.mark.parametrize("normalizer", ["steps", "momentum"])
@pytest.mark.parametrize("regulator", ["none", "ecgr"])
def test_fednova_with_equal_steps_is_fedavg(normalizer: str, regulator: str) -> None:
    """Equal a_i = a: a * sum p_i u_i / a = sum p_i u_i."""
    parts = [range(8), range(8, 16), range(16, 24)]
    one = played(nets({"name": "fedavg"}, parts, regulator={"name": regulator}))
    other = played(nets({"name": "fednova", "normalizer": normalizer}, parts, regulator={"name": regulator}))
    assert torch.allclose(one.params, other.params, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 5, 47])
def test_fednovas_momentum_normaliser_is_the_total_weight_of_the_gradients(steps: int, momentum: float) -> None:
    explicit = float(momentum_weights(steps, momentum).sum())
    assert Plan(steps, 0.1, momentum).effective_steps == pytest.approx(explicit, rel=1e-12)
    trace = Trace(flat(1, 2), flat(1, 2), steps, 0.1, momentum)
    for normalizer, expected in [("momentum", explicit), ("steps", steps)]:
        payload = compose(ALGORITHMS["fednova"](normalizer=normalizer)).finish(trace, {}, {})[1]
        assert float(payload["effective_steps"]) == pytest.approx(expected, rel=1e-12)


def test_fednovas_effective_steps_follow_the_participants_alone() -> None:
    """Two of many: p = 1/4, 3/4 among those who took part, a = 1, 3: effective 2.5, mean = u_0/4 + 3/4 u_1 / 3."""
    algorithm = compose(FedNova())
    uploads = [
        Upload(i, n, algorithm.finish(Trace(signed(u), signed(u), steps=t, lr=1.0, momentum=0.0), {}, {})[1])
        for i, (n, t, u) in enumerate([(1, 1, 1.0), (3, 3, 6.0)])
    ]
    params, _ = algorithm.aggregate(flat(0, 0), {}, uploads, Population(clients=100, examples=10_000), 1.0)
    assert_is(params, -2.5 * (1.0 / 4 + 0.75 * 2.0))


@pytest.mark.parametrize(("weights", "share"), [("examples", 2 / 50), ("uniform", 1 / 10)])
def test_scaffolds_control_under_partial_participation_moves_by_population_shares(weights: str, share: float) -> None:
    """One of ten clients takes part, with 2 of 50 examples; c = 1 before, T = 2, lr = 0.5, plain update 3.

    c_i' - c_i = -c + 3 / (2 * 0.5) = 2, so c' = 1 + 2 * share. The model moves by the whole update all the same.
    """
    algorithm = compose(ALGORITHMS["scaffold"](control_weights=weights))
    server = {"control": signed(1.0)}
    trace = Trace(update=signed(7.0), plain=signed(3.0), steps=2, lr=0.5, momentum=0.0, regulated=True)
    state, payload = algorithm.finish(trace, server, {"control": signed(0.25)})
    assert_is(state["control"], 2.25)
    params, after = algorithm.aggregate(
        flat(0, 0), server, [Upload(4, 2, payload)], Population(clients=10, examples=50), lr=0.5
    )
    assert_is(after["control"], 1 + 2 * share)
    assert_is(params, -7.0)


def test_scaffolds_control_comes_from_the_training_that_took_place() -> None:
    """Regulation changes the upload, never c_i."""
    one = played(nets({"name": "scaffold"}, regulator={"name": "none"}))
    other = played(nets({"name": "scaffold"}, regulator={"name": "ecgr", "beta": 0.0}))
    assert not torch.equal(one.params, other.params)
    for client, state in one.clients.items():
        assert same_bits(state["control"], other.clients[client]["control"])
    assert same_bits(one.server["control"], other.server["control"])


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_scaffold_without_momentum_equals_its_paper_over_several_rounds(weights: str) -> None:
    """Two unlike clients, three full-batch steps a round, five rounds: model, c and every c_i."""
    pixels, labels = [255, 51, 204, 102, 153, 255, 204], [0, 0, 1, 0, 1, 1, 1]
    parts = [[0, 1, 2, 3], [4, 5, 6]]
    task = problem(
        one_pixel(pixels, labels),
        parts,
        model={"name": two_parameters},
        regulator={"name": "none"},
        algorithm={"name": "scaffold", "control_weights": weights},
        optimizer={"name": "sgd", "lr": 0.8, "momentum": 0.0},
        federation={"rounds": 5, "batch_size": 10, "local_epochs": 3},
    )
    clients = [Client(np.array([pixels[i] / 255 for i in part]), np.array([labels[i] for i in part])) for part in parts]
    models, control, own = scaffold(clients, rounds=5, steps=3, lr=0.8, uniform=weights == "uniform")
    snapshot, engine = start(task), SerialEngine(task)
    for expected in models:
        snapshot = play_round(task, engine, snapshot).snapshot
        np.testing.assert_allclose(snapshot.params.numpy(), expected, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(snapshot.server["control"].numpy(), control, rtol=2e-5, atol=1e-6)
    for client, expected in enumerate(own):
        np.testing.assert_allclose(snapshot.clients[client]["control"].numpy(), expected, rtol=2e-5, atol=1e-6)


def test_scaffolds_correction_stays_outside_the_momentum_buffer() -> None:
    """A with momentum 0.9, c - c_A = (0.2, -0.2), lr 1: the buffer holds gradients only.

    Step 1: gradient -0.5, a = 0.5 - 0.2 = 0.3.  Step 2: gradient -(1 - s(0.6)), velocity -(1 - s(0.6)) - 0.45,
    a = 0.3 + (1 - s(0.6)) + 0.45 - 0.2.  (Inside the buffer the first 0.2 would count 1.9 times.)
    """
    task = world({"name": "scaffold"}, optimizer={"name": "sgd", "lr": 1.0, "momentum": 0.9})
    job = ClientJob(0, 0, 1.0, 1, flat(0, 0), {}, {"control": signed(0.0)}, {"control": signed(0.2)})
    result, _ = train_client(job, Workspace(task))
    assert_is(result.payload["update"], -(0.3 + 1 - s(0.6) + 0.45 - 0.2))


def test_the_correction_is_part_of_the_recorded_steps() -> None:
    """With beta 1 the regulated update is the plain one, correction included, to the bit."""
    sections = {"optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}}
    job = ClientJob(0, 0, 1.0, 1, flat(0, 0), {}, {"control": signed(0.0)}, {"control": signed(0.2)})
    updates = [
        train_client(job, Workspace(world({"name": "scaffold"}, regulator=regulator, **sections)))[0]
        for regulator in ({"name": "none"}, {"name": "ecgr", "beta": 1.0})
    ]
    assert same_bits(updates[0].payload["update"], updates[1].payload["update"])
