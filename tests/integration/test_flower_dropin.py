"""The example of an ordinary Flower app: three more lines, any of Flower's strategies, and a guard in front of them."""

import difflib
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict, UserConfig
from flwr.serverapp.strategy import FedAdam, FedAvg

from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, Guarded, MemoryGrid
from support.bad_replies import only, with_array, with_metric

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-dropin"
NODES: list[dict[str, Any]] = [{"partition-id": site} for site in range(4)]


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("client_app", "regulated_client_app", "server_app", "task"):
        import_module(f"dropin.{name}")
    yield sys.modules["dropin"]
    for name in [name for name in sys.modules if name.split(".")[0] == "dropin"]:
        del sys.modules[name]


def accuracies(apps: Any, client: Any, strategy: str, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seen: list[float] = []
    evaluate = apps.server_app.evaluate

    def watched(server_round: int, arrays: ArrayRecord) -> Any:
        metrics = evaluate(server_round, arrays)
        seen.append(metrics["accuracy"])
        return metrics

    monkeypatch.setattr(apps.server_app, "evaluate", watched)
    grid = MemoryGrid(client, NODES)
    settings: UserConfig = {"strategy": strategy, "rounds": 4, "lr": 0.05, "sites": 4}
    apps.server_app.app(grid, Context(7, 1, {}, RecordDict(), settings))
    monkeypatch.setattr(apps.server_app, "evaluate", evaluate)
    return seen


def test_the_difference_is_three_lines() -> None:
    plain = (EXAMPLE / "dropin" / "client_app.py").read_text().splitlines()
    regulated = (EXAMPLE / "dropin" / "regulated_client_app.py").read_text().splitlines()
    changes = [line for line in difflib.ndiff(plain, regulated) if line[0] in "+-"]
    stripped = {line.strip() for line in plain}
    new = [line[2:].strip() for line in changes if line[0] == "+" and line[2:].strip() not in stripped]
    assert new == [
        "import ecgr",
        "with ecgr.Recorder(model, optimizer) as steps:",
        "steps.regulated(ecgr.ECGR(beta=0.2)).apply_(model)",
    ]
    guide = (EXAMPLE.parents[1] / "docs" / "guide" / "federation.md").read_text()
    assert all(f"+    {line}" in guide or f"+{line}" in guide for line in new)


@pytest.mark.parametrize(
    "strategy", ["fedadam", *(pytest.param(n, marks=pytest.mark.nightly) for n in ("fedavg", "fedprox"))]
)
def test_both_clients_learn_with_flowers_own_strategies(
    strategy: str, apps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = accuracies(apps, apps.client_app.app, strategy, monkeypatch)
    regulated = accuracies(apps, apps.regulated_client_app.app, strategy, monkeypatch)
    assert len(plain) == len(regulated) == 5
    assert plain[0] == regulated[0]
    assert plain[1:] != regulated[1:]
    assert min(plain[-1], regulated[-1]) > plain[0] + 0.1


def play(apps: Any, strategy: Guarded, rounds: int, tamper: Any = None) -> Any:
    grid = MemoryGrid(apps.client_app.app, NODES, tamper=tamper)
    start = ArrayRecord(apps.task.build_model().state_dict())
    return strategy.start(grid, start, rounds, train_config=ConfigRecord({"lr": 0.05, "sites": 4}))


def guarded(guard: Guard | None = None) -> Guarded:
    return Guarded(FedAvg(fraction_evaluate=0.0), guard or Guard())


@pytest.fixture
def batch_norm(apps: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def build_model() -> nn.Module:
        torch.manual_seed(0)
        flat = (nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
        return nn.Sequential(*flat)

    for module in (apps.task, apps.client_app):
        monkeypatch.setattr(module, "build_model", build_model)


boast = with_metric("num-examples", 10**6)
poison = with_array(lambda weight: weight * np.float32("nan"), "1.weight")
shout = with_array(lambda weight: weight + np.float32(1e6), "1.weight")
negative = with_array(lambda variance: -variance, "2.running_var")


@pytest.mark.parametrize(
    ("spoil", "word"), [(poison, "nonfinite"), (boast, "weight"), (shout, "norm"), (negative, "range")]
)
def test_a_guarded_strategy_aggregates_the_good_replies_alone(
    spoil: Any, word: str, apps: Any, request: pytest.FixtureRequest
) -> None:
    if spoil is negative:
        request.getfixturevalue("batch_norm")
    strategy = guarded()
    result = play(apps, strategy, 2, only(2, spoil))
    assert [(r, reason.split(":")[0]) for r, _, reason in strategy.rejected] == [(1, word), (2, word)]
    honest = play(apps, guarded(), 2, only(2, lambda order, reply: []))
    for name, array in result.arrays.items():
        assert array.data == honest.arrays[name].data


def test_a_guarded_strategy_gives_up_without_a_quorum(apps: Any) -> None:
    with pytest.raises(QuorumLost, match="void 2 times"):
        play(apps, guarded(Guard(min_clients=4, attempts=2)), 5, only(2, poison))


@pytest.mark.usefixtures("batch_norm")
@pytest.mark.parametrize("strategy", [FedAvg, pytest.param(FedAdam, marks=pytest.mark.nightly)])
def test_a_guarded_strategy_learns_with_batch_norm(strategy: Any, apps: Any) -> None:
    """Flower's mean of the counters is a fraction; sites would answer in float64, which is not the model's dtype."""
    chosen = Guarded(strategy(fraction_evaluate=0.0))
    result = play(apps, chosen, 4)
    assert chosen.rejected == []
    sent = ArrayRecord(apps.task.build_model().state_dict())
    assert {name: array.dtype for name, array in result.arrays.items()} == {n: a.dtype for n, a in sent.items()}
    losses: list[Any] = [result.train_metrics_clientapp[number]["loss"] for number in range(1, 5)]
    assert losses[-1] < losses[0]


def test_a_guarded_strategy_does_not_finish_without_replies(apps: Any) -> None:
    """Also where fewer rounds are left than attempts."""
    answered: list[int] = []

    def once(node: int, order: Message, reply: Message) -> Sequence[Message]:
        answered.append(node)
        return [reply] if len(answered) <= len(NODES) else []

    with pytest.raises(QuorumLost, match="round 2: void 3 times, 0 replies usable"):
        play(apps, guarded(), 2, once)


def test_a_strategy_of_flowers_cannot_clip() -> None:
    with pytest.raises(ConfigError, match="clip"):
        Guarded(FedAvg(), Guard(outliers="clip"))
