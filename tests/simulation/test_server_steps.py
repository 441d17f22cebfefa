"""A few labelled samples at the server: the steps on them, whose they are, and what a comparison measures them by."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import ecgr
from ecgr.compare.plan import plan_comparison
from ecgr.config.methods import method_settings
from ecgr.config.partition import chosen_share, partition_of
from ecgr.errors import ConfigError
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, play_round, simulate, start
from ecgr.simulation.workspace import Problem
from support.compositions import difference
from support.problems import same_bits

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)).astype(np.float32), RNG.integers(0, 2, 60)
OWN_X, OWN_Y = RNG.normal(size=(8, 3)).astype(np.float32), RNG.integers(0, 2, 8)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def task(server: Any = (OWN_X, OWN_Y), model: Any = network) -> ecgr.Task:
    return ecgr.Task(model=model, train=(X, Y), test=(X, Y), clients=3, server=server)


def problem(method: str, made: ecgr.Task | None = None) -> Problem:
    made = made or task()
    changes = {"federation.rounds": 3, "federation.batch_size": 8, "optimizer.lr": 0.05, "run.served": "average"}
    return prepare(ecgr.load(made, {**changes, **method_settings(method)}), made.load())


def played(given: Problem) -> Snapshot:
    *_, last = simulate(given, SerialEngine(given), start(given))
    return last.snapshot


def test_zero_steps_are_the_method_without_them_to_the_bit() -> None:
    for method in ("fedavg", "drift_correction+ecgr"):
        plain, none, five = (
            played(problem(f"{method}{part}")) for part in ("", "+server_steps(steps=0)", "+server_steps")
        )
        assert difference(problem(method), plain, none) == []
        assert not same_bits(plain.params, five.params)


def test_steps_by_hand() -> None:
    """After the round's mean update, three plain steps down the gradient of the mean loss over the server's samples."""
    made = task(model=lambda: nn.Linear(3, 2))
    plain = play_round(given := problem("fedavg", made), SerialEngine(given), start(given)).snapshot
    weight, bias = (tensor.clone().requires_grad_() for tensor in given.spec.views(plain.params))
    for _ in range(3):
        loss = nn.functional.cross_entropy(torch.from_numpy(OWN_X) @ weight.T + bias, torch.from_numpy(OWN_Y))
        gradients = torch.autograd.grad(loss, (weight, bias))
        with torch.no_grad():
            weight -= 0.2 * gradients[0]
            bias -= 0.2 * gradients[1]
    given = problem("fedavg+server_steps(steps=3, lr=0.2)", made)
    after = play_round(given, SerialEngine(given), start(given)).snapshot
    expected = torch.cat([weight.detach().flatten(), bias.detach()])
    torch.testing.assert_close(after.params, expected, rtol=0, atol=1e-6)
    assert same_bits(after.average["older/ params"], after.params)


def test_they_leave_statistics_to_the_clients_and_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    plain, given = problem("fedavg"), problem("fedavg+server_steps(batch=4)")
    rounds = [play_round(each, SerialEngine(each), start(each)).snapshot for each in (plain, given)]
    assert all(same_bits(rounds[0].buffers[name], rounds[1].buffers[name]) for name in rounds[0].buffers)
    assert torch.equal(torch.get_rng_state(), state)
    assert difference(given, played(given), played(given)) == []


def test_they_are_the_same_in_a_federation(tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    from support.federations import federation

    given = problem("drift_correction+ecgr+server_steps@lda")
    playing, snapshot = federation(given, tmp_path), start(given)
    for _ in range(3):
        snapshot = playing.play_round(snapshot).snapshot
    assert difference(given, snapshot, played(given), clients=False) == []


def test_samples_that_are_drawn_are_no_clients_and_never_tested_with() -> None:
    def halves(**settings: Any) -> tuple[set[int], set[int], set[int], int]:
        """Of the digits' 1,438 training images, by their hashes: the clients', the server's, those scored on."""
        chosen = ecgr.load("quickstart", {"data.server_samples": 50, **settings})
        data = chosen_share(chosen, chosen.source.load())
        assert data.server is not None
        parts = partition_of(chosen, data)
        used = data.train.inputs[np.concatenate(parts.clients)]
        return (
            *({hash(image.tobytes()) for image in half} for half in (used, data.server.inputs, data.test.inputs)),
            len(used),
        )  # type: ignore[return-value]

    clients, server, tested, count = halves()
    assert (count, len(server)) == (1438 - 50, 50)
    assert not (clients & server or clients & tested or server & tested)
    assert halves()[1] == server != halves(**{"run.seed": 1})[1]
    tuning = halves(**{"data.validation": 0.2})
    assert tuning[1] == server
    assert not (tuning[0] & tuning[2] or server & tuning[2])
    alone = halves(**{"partition.server": True})
    assert alone[0] == alone[1] == server


def test_the_identity_covers_the_samples_and_without_any_it_is_as_before() -> None:
    plain, own, other = task(None), task(), task((OWN_X, 1 - OWN_Y))
    assert len({each.identity.sha256 for each in (plain, own, other)}) == 3
    assert "server_samples" not in ecgr.load("quickstart").to_dict()["data"]
    assert "server" not in ecgr.load("quickstart").to_dict()["partition"]


def test_wherever_the_server_has_samples_they_alone_are_a_row_to_measure_by(tmp_path: Path) -> None:
    methods, settings = ["fedavg", "fedavg+server_steps"], {"federation.rounds": 1, "federation.batch_size": 8}
    with_them, without = (
        [
            each.name
            for each in plan_comparison(
                made, methods=methods, seeds=2, settings=settings, tune=False, references=False
            ).methods
        ]
        for made in (task(), task(None))
    )
    assert with_them == [*methods, "server alone"]
    assert without == methods
    answer = ecgr.compare(
        task(), methods=methods, seeds=2, settings=settings, tune=False, references=False, engine="serial", out=tmp_path
    )
    assert [reference.name for reference in answer.references] == ["server alone"]


def test_what_cannot_be_is_refused_by_name() -> None:
    cases: list[tuple[str, ecgr.Task, dict[str, Any], str]] = [
        ("fedavg+server_steps", task(None), {}, "the server has no samples"),
        ("head_only+server_steps@lda", task(), {}, "head_only takes no step that server_steps could change"),
        ("fedavg", task(), {"data.server_samples": 3}, "the task brings the server's samples itself"),
        ("fedavg", task(None), {"data.server_samples": 60}, "60 of 60 training samples leaves clients none"),
        ("fedavg", task((OWN_X[:, :2], OWN_Y)), {}, "cannot take the server's samples"),
        ("fedavg", task((OWN_X, OWN_Y + 1)), {}, "server: label 2"),
    ]
    for method, made, settings, says in cases:
        with pytest.raises(ecgr.EcgrError) as caught:
            prepare(ecgr.load(made, {**settings, **method_settings(method)}), made.load())
        assert says in str(caught.value), method
    with pytest.raises(ConfigError, match="server_samples: partition"):
        chosen = ecgr.load("quickstart", {"data.server_samples": 5, "partition.file": "parts.json"})
        chosen_share(chosen, chosen.source.load())
