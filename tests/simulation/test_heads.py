"""Closed-form heads on federated models: equal to scikit-learn's, the same bits everywhere, refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge
from torch import nn

import ecgr
from ecgr.config.methods import method_settings
from ecgr.errors import ConfigError
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, final_state, simulate, start
from ecgr.simulation.workspace import Problem
from support.commands import run_in_three_ways
from support.problems import same_bits

WIDTH, CLASSES = 6, 3
RNG = np.random.default_rng(0)
LABELS = np.sort(RNG.integers(0, CLASSES, 400))
INPUTS = (RNG.normal(size=(400, 4)) + RNG.normal(size=(CLASSES, 4))[LABELS]).astype(np.float32)
CLIENTS = {
    1: None,
    3: np.repeat(["a", "b", "c"], [100, 100, 200]),
    200: np.repeat([f"{i:03}" for i in range(200)], 2),
}


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES)).double()


def task(targets: Any = LABELS, clients: Any = CLIENTS[3], model: Any = mlp, **options: Any) -> ecgr.Task:
    return ecgr.Task(model=model, train=(INPUTS, targets), test=(INPUTS, targets), clients=clients, **options)


def experiment(method: str, made: ecgr.Task, **settings: Any) -> ecgr.Experiment:
    changes = {"federation.rounds": 2, "federation.batch_size": 50, "optimizer.lr": 0.05, "run.served": "average"}
    return ecgr.load(made, {**changes, **settings, **method_settings(method)})


def problem(method: str, made: ecgr.Task | None = None, settings: dict[str, Any] | None = None) -> Problem:
    made = made or task()
    return prepare(experiment(method, made, **(settings or {})), made.load())


def played(given: Problem, engine: Any = None) -> tuple[Snapshot, Any]:
    *_, last = simulate(given, engine or SerialEngine(given), start(given))
    return last.snapshot, last.row


def features_of(given: Problem, model: nn.Sequential, end: Snapshot) -> np.ndarray[Any, Any]:
    """What enters the last layer, of all samples."""
    model.load_state_dict(final_state(given, end))
    with torch.no_grad():
        found: np.ndarray[Any, Any] = model.eval()[:-1](torch.from_numpy(INPUTS).double()).numpy()
        return found


@pytest.mark.parametrize(
    ("method", "clients"), [("fedavg", 1), ("fedavg", 3), ("fedavgm+ecgr", 3), ("head_only", 3), ("head_only", 200)]
)
def test_heads_are_scikit_learns_on_the_pooled_features(method: str, clients: int) -> None:
    """Clients hold one class or two of three; 200 of them two samples each."""
    made = task(clients=CLIENTS[clients]) if clients > 1 else task(clients=None)
    pooled = {} if clients > 1 else {"partition.pooled": True}
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    ridge = SklearnRidge(alpha=2.0)
    for head, expected, targets in (("lda", lda, LABELS), ("ridge(lam=2)", ridge, np.eye(CLASSES)[LABELS])):
        given = problem(f"{method}@{head}", made, pooled)
        end, row = played(given)
        features = features_of(given, mlp(), end)
        expected.fit(features, targets)
        found = final_state(given, end)
        np.testing.assert_allclose(found["3.weight"], expected.coef_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(found["3.bias"], expected.intercept_, rtol=0, atol=1e-8)
        scores = features @ found["3.weight"].numpy().T + found["3.bias"].numpy()
        assert row["accuracy"] == pytest.approx((scores.argmax(axis=1) == LABELS).mean())


def test_regression_and_yes_or_no_have_heads_too() -> None:
    numbers = (INPUTS @ np.ones((4, 2)) + 3).astype(np.float32)

    def two() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)).double()

    def one() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1), nn.Flatten(0)).double()

    yes = (LABELS > 0).astype(np.int64)
    lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    cases: list[tuple[Any, ...]] = [
        (two, numbers, "mse", "ridge", SklearnRidge(alpha=1.0), numbers),
        (one, yes, "bce", "ridge", SklearnRidge(alpha=1.0), 2.0 * yes - 1),
        (one, yes, "bce", "lda", lda, yes),
    ]
    for model, targets, loss, head, expected, encoded in cases:
        metrics = ["mae"] if loss == "mse" else ["accuracy"]
        given = problem(f"head_only@{head}", task(targets, model=model, loss=loss, metrics=metrics))
        end, _ = played(given)
        expected.fit(features_of(given, nn.Sequential(*list(model())[:3]), end), encoded)
        found = final_state(given, end)
        np.testing.assert_allclose(found["2.weight"], np.atleast_2d(expected.coef_), rtol=0, atol=1e-8)
        np.testing.assert_allclose(found["2.bias"], np.atleast_1d(expected.intercept_), rtol=0, atol=1e-8)


def test_a_head_changes_nothing_before_the_last_round_and_its_sums_are_counted() -> None:
    plain, given = problem("fedavg"), problem("fedavg@lda")
    (a, row), (b, with_head) = played(plain), played(given)
    assert same_bits(a.params, b.params)
    assert (a.head, set(b.head)) == ({}, {"weight", "bias"})
    assert with_head["without_head"] == {"metrics": row["metrics"], "loss": row["loss"]}
    rows = WIDTH + 1
    assert with_head["bytes_up"] == row["bytes_up"] + 3 * 8 * (CLASSES * rows + rows * (rows + 1) // 2)
    before, after = final_state(plain, a), final_state(given, b)
    assert [name for name in before if not same_bits(before[name], after[name])] == ["3.weight", "3.bias"]


def test_head_only_takes_one_round_and_the_others_cost_nothing() -> None:
    given = problem("head_only@ridge", None, {"federation.rounds": 3})
    rows = [outcome.row for outcome in simulate(given, SerialEngine(given), start(given))]
    assert [row["accuracy"] for row in rows] == [rows[0]["accuracy"]] * 3
    assert rows[0]["bytes_up"] > rows[1]["bytes_up"] == rows[2]["bytes_up"] == 0
    assert rows[0]["train_loss"] is None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavgm(server_momentum=0.5)@lda", "head_only@ridge"])
def test_heads_are_the_same_pooled_and_resumed(method: str, tmp_path: Path) -> None:
    made = task()
    directory, given = run_in_three_ways(experiment(method, made), tmp_path), problem(method, made)
    found, expected = load_file(directory / "model.safetensors"), final_state(given, played(given)[0])
    assert all(same_bits(found[name], tensor) for name, tensor in expected.items())


def test_the_number_of_rounds_is_part_of_a_run_with_a_head_at_its_end() -> None:
    made = task()
    keys = [
        [experiment(method, made, **{"federation.rounds": rounds}).key() for rounds in (2, 3)]
        for method in ("fedavg", "fedavg@lda", "head_only@lda")
    ]
    assert [one == other for one, other in keys] == [True, False, True]


class Hidden(nn.Module):
    """Its last linear layer does not make its output."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.first = nn.Linear(4, CLASSES), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x))  # type: ignore[no-any-return]


def test_what_has_no_head_is_refused_by_name() -> None:
    regression = {"targets": INPUTS[:, :1], "model": lambda: nn.Linear(4, 1), "loss": "mse", "metrics": "mae"}
    bare = nn.Sequential(nn.Linear(4, CLASSES, bias=False))
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("fedavg@lda", {"model": Hidden}, "(first) does not make the model's output"),
        ("fedavg@lda", {"model": lambda: nn.Sequential(mlp().float(), nn.LogSoftmax(1))}, "does not make the model's"),
        ("fedavg@lda", {"model": bare}, "must be trainable, have a bias"),
        ("fedavg@lda", {"model": lambda: nn.Sequential(nn.Flatten(), nn.Bilinear(4, 4, 3))}, "cannot take"),
        ("fedavg@lda", {"loss": lambda o, t: nn.functional.cross_entropy(o, t) * 2}, "no closed form"),
        ("fedavg@lda(min_count=201)", {}, "no client has 201 samples"),
        ("fedavg@lda", regression, "is for classes, and the targets are numbers; use ridge"),
        ("head_only", {}, "head_only trains nothing"),
        ("head_only+ecgr@lda", {}, "head_only takes no step that regulator could change"),
        ("head_only/momentum@lda", {}, "head_only takes the server's step itself"),
    ]
    for method, options, says in refused:
        with pytest.raises(ConfigError) as caught:
            problem(method, task(**options))
        assert says in str(caught.value), method


def test_clients_below_the_floor_send_nothing() -> None:
    groups = np.repeat(["a", "b", "c"], [120, 275, 5])
    given = problem("head_only@ridge(min_count=6)", task(clients=groups), {"federation.rounds": 1})
    end, row = played(given)
    features = features_of(given, mlp(), end)[:395]
    expected = SklearnRidge(alpha=1.0).fit(features, np.eye(CLASSES)[LABELS[:395]])
    np.testing.assert_allclose(final_state(given, end)["3.weight"], expected.coef_, rtol=0, atol=1e-8)
    rows = WIDTH + 1
    assert row["bytes_up"] == 2 * 8 * (CLASSES * rows + rows * (rows + 1) // 2)
