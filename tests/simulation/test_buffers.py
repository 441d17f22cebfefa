"""What a round does to BatchNorm's buffers: the prediction against the real thing."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ecgr.algorithms import ALGORITHMS, Population, compose
from ecgr.core.vectors import ParamSpec
from ecgr.simulation.buffers import (
    BUFFERS,
    Forgetting,
    Server,
    averaged_factor,
    buffers_momentum,
    forgotten,
    smallest_variance,
    weighted_factor,
)
from ecgr.simulation.rounds import Snapshot, play_round, start
from support.problems import Watching, blobs, offer, problem, small_net
from support.quick import quick_where

SETTINGS: dict[str, Any] = {
    "model": {"name": "net"},
    "federation": {"rounds": 3, "batch_size": 4},
    "optimizer": {"name": "sgd", "lr": 0.05},
}


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def task(algorithm: str, buffers: str, **regulator: Any) -> Any:
    settings = {
        **SETTINGS,
        "algorithm": {"name": algorithm},
        "regulator": regulator,
        "run": {"buffers": buffers, "diagnostics": True},
    }
    return problem(blobs(60), [range(40), range(40, 56), range(56, 60)], **settings)


def test_forgotten_is_what_the_recursion_forgets() -> None:
    """The slow way: run the recursion on two starting values; the update's part that depends on the start."""
    weights, momentum = torch.tensor([1.7, 0.34, 1.7, 0.34], dtype=torch.float64), 0.1

    def update(old: float) -> float:
        value, total = old, 0.0
        for weight, batch in zip(weights.tolist(), (3.0, 1.0, 4.0, 1.0), strict=True):
            new = (1 - momentum) * value + momentum * batch
            total, value = total + weight * (value - new), new
        return total

    assert forgotten(weights, momentum) == pytest.approx(update(1.0) - update(0.0), rel=1e-12)


def test_the_paper_s_formula_for_fednova_by_hand() -> None:
    """1 - sum w_i gamma_i sum_j omega_ij 0.1 0.9^(j-1), w_i = p_i tau_eff / tau_i; here 2 and 90 steps."""
    long = forgotten(torch.full((90,), 1.5, dtype=torch.float64), 0.1)
    clients = [Forgetting(0, 20, 2, 0.19), Forgetting(1, 900, 90, long)]
    shares = (20 / 920, 900 / 920)
    effective = shares[0] * 2 + shares[1] * 90
    by_hand = 1 - (shares[0] * effective / 2 * 0.19 + shares[1] * effective / 90 * 1.5 * (1 - 0.9**90))
    algorithm = compose(ALGORITHMS["fednova"]())
    assert weighted_factor(clients, Server(algorithm, Population(2, 920), 0.001, 0.9)) == pytest.approx(
        by_hand, rel=1e-12
    )


@pytest.mark.parametrize(
    ("buffers", "algorithm", "regulator"),
    quick_where(
        lambda buffers, algorithm, regulator: algorithm == "fednova" and regulator == {"name": "ecgr", "beta": 0.2},
        product(
            ["average", "as_weights"],
            ["fedavg", "fedprox", "fednova", "scaffold"],
            [{"name": "none"}, {"name": "ecgr", "beta": 0.2}, {"name": "ecgr", "beta": 0.0}],
        ),
    ),
)
def test_the_factor_is_what_the_round_multiplies_old_statistics_with(
    algorithm: str, buffers: str, regulator: dict[str, Any]
) -> None:
    """A round from each of two models that differ in one running mean by 1: afterwards they differ by the factor."""
    one = task(algorithm, buffers, **regulator)
    spec = ParamSpec.of(one.model, buffers_as_weights=buffers == "as_weights")
    engine = Watching(one, lambda result: result)
    before = start(one)

    def mean_of(snapshot: Snapshot) -> Tensor:
        return {**spec.named(snapshot.params), **snapshot.buffers}["1.running_mean"]

    moved_params, moved_buffers = before.params.clone(), {k: v.clone() for k, v in before.buffers.items()}
    moved = Snapshot(0, moved_params, moved_buffers, before.server, before.clients)
    mean_of(moved).add_(1.0)
    after, after_moved = play_round(one, engine, before), play_round(one, engine, moved)
    measured = mean_of(after_moved.snapshot) - mean_of(after.snapshot)
    predicted = after.row["buffers"]["factor"]
    assert torch.allclose(measured, torch.full_like(measured, predicted), atol=2e-5)
    assert after.row["buffers"]["smallest_variance"] == pytest.approx(
        float({**spec.named(after.snapshot.params), **after.snapshot.buffers}["1.running_var"].min())
    )


@pytest.mark.parametrize("algorithm", ["fedavg", "fednova", "scaffold"])
def test_statistics_as_weights_leave_the_weights_alone(algorithm: str) -> None:
    """The regulator never sees them: round by round the same weights, to the bit, as with averaged statistics."""
    ends = []
    for buffers in ("average", "as_weights"):
        one = task(algorithm, buffers, name="ecgr", beta=0.2)
        names = ParamSpec.of(one.model).names
        spec = ParamSpec.of(one.model, buffers_as_weights=buffers == "as_weights")
        snapshot = start(one)
        for _ in range(3):
            snapshot = play_round(one, Watching(one, lambda result: result), snapshot).snapshot
        ends.append(torch.cat([spec.named(snapshot.params)[name].flatten() for name in names]))
    assert torch.equal(*ends)


def test_averaged_statistics_never_leave_the_clients_range() -> None:
    assert 0 < averaged_factor([Forgetting(0, 10, 2, 0.19), Forgetting(1, 900, 90, 1 - 0.9**90)]) < 1


def test_models_without_statistics_have_no_such_numbers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False))
    assert buffers_momentum(model) is None
    assert smallest_variance(model.state_dict()) is None


def test_every_choice_of_a_config_has_its_rule() -> None:
    from ecgr.config.schema import describe, parameters_of
    from ecgr.config.sections import RunSettings

    assert describe(parameters_of(RunSettings)["buffers"]) == "one of: " + ", ".join(BUFFERS)


def test_only_diagnostics_look_at_buffers() -> None:
    one = problem(blobs(24), [range(24)], **SETTINGS)
    row = play_round(one, Watching(one, lambda result: result), start(one)).row
    assert "buffers" not in row
    assert "forgotten" not in row["clients"][0]
