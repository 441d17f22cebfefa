"""Differential privacy in a federation: sites clip, the server clips again, noise is fresh, repeated rounds count."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from ecgr.config.experiment import Experiment
from ecgr.config.methods import parse_method
from ecgr.runs.runner import run
from support.bad_replies import only, with_array
from support.federations import CLIENTS, experiment, federate, weights
from support.private import linear
from support.problems import offer


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=linear)


def private(method: str, **changes: object) -> Experiment:
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return experiment("fedavg", "none", {**parse_method(method), "federation.participation": 1.0, **given})


@pytest.mark.slow
def test_noise_and_participants_of_a_federation_cannot_be_told_from_the_seed(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    chosen = private("fedavg+dp(clip=0.1, noise=0.5)", federation__participation=0.5)
    run(chosen, tmp_path / "simulated")
    records = [federate(chosen, tmp_path / name / "run") for name in "ab"]
    assert len({weights(tmp_path / name) for name in ("simulated", "a/run", "b/run")}) == 3
    assert all(row["clients"] == [] and row["privacy"]["epsilon"] > 0 for each in records for row in each.rounds)


def test_the_server_clips_what_a_site_does_not(tmp_path: Path) -> None:
    """One of four sites sends a million times its update: no step is longer than the clip, and nobody is refused."""

    tamper = only(1, with_array(lambda update: update * np.float32(1e6)))
    record = federate(private("fedavg+dp(clip=0.1, noise=0)"), tmp_path / "run", tamper=tamper)
    assert all(row["rejected"] == [] and 0 < row["step_norm"] <= 0.1 * (1 + 1e-6) for row in record.rounds)


def test_a_round_that_is_repeated_counts_twice(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    from ecgr.algorithms.privacy import epsilon

    dropped: list[str] = []

    def tamper(node: int, order: Message, reply: Message) -> Sequence[Message]:
        lost = order.metadata.group_id == "2.1"
        dropped.extend([order.metadata.group_id] * lost)
        return [] if lost else [reply]

    record = federate(private("fedavg+dp(clip=0.1, noise=1)"), tmp_path / "run", tamper=tamper)
    assert len(dropped) == CLIENTS
    assert [row["privacy"]["counted"] for row in record.rounds] == [1, 3, 4]
    assert record.rounds[-1]["privacy"]["epsilon"] == pytest.approx(epsilon(1.0, 1.0, 4, 1e-5))
