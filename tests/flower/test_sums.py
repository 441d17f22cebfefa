"""Heads in a federation: sums of a site that cannot be true are left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict

from ecgr.algorithms.heads import sums
from ecgr.config.experiment import Experiment
from ecgr.config.methods import method_settings
from ecgr.errors import QuorumLost
from ecgr.flower.guard import check_sums
from ecgr.flower.memory import Tamper
from ecgr.flower.wire import SUMS, Refusal
from ecgr.runs.record import RunRecord
from support.federations import experiment, federate, federate_as_run, weights
from support.problems import offer, small_net


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def chosen(method: str) -> Experiment:
    return experiment("fedavg", "none", {"federation.rounds": 2, "run.served": "average", **method_settings(method)})


Spoil = Callable[[dict[str, np.ndarray[Any, Any]]], None]


def tampering(spoil: Spoil, site: int = 1) -> Tamper:
    def tamper(index: int, order: Message, reply: Message) -> list[Message]:
        if index == site and order.metadata.message_type == SUMS:
            content = reply.content
            arrays = {name: np.array(array.numpy()) for name, array in content.array_records["arrays"].items()}
            spoil(arrays)
            records: dict[str, Any] = {"arrays": ArrayRecord({n: Array(a) for n, a in arrays.items()})}
            records["report"] = content.config_records["report"]
            return [Message(RecordDict(records), reply_to=order)]
        return [reply]

    return tamper


def scaled(factor: float) -> Spoil:
    """Features so many times as long, of as many samples."""

    def spoil(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        rows = arrays["by_target"].shape[1]
        lengths = np.append(np.full(rows - 1, factor), 1.0)
        arrays["by_target"] *= lengths
        arrays["gram"] *= np.outer(lengths, lengths)[np.triu_indices(rows)]

    return spoil


def set_to(name: str, place: tuple[int, ...], value: float) -> Spoil:
    def spoil(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        arrays[name][place] = value

    return spoil


def more_samples(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    arrays["by_target"] *= 5
    arrays["gram"] *= 5


LIES: list[tuple[Spoil, str]] = [
    (set_to("gram", (0,), np.nan), "nonfinite: gram holds 1"),
    (set_to("gram", (0,), -1.0), "range: gram is no sum of squares"),
    (more_samples, "count: "),
    (set_to("by_target", (2, -1), -1.0), "count: by_target has -1 samples of a class"),
    (set_to("by_target", (2, 0), 1e6), "range: by_target adds up to other sums"),
    (scaled(1000.0), "norm: features of length"),
    (
        lambda arrays: arrays.update(gram=arrays["gram"].astype(np.float32)),
        "dtype: gram is 'float32', expected float64",
    ),
    (lambda arrays: arrays.update(gram=arrays["gram"][:-1]), "shape: gram is"),
]


def test_sums_that_cannot_be_true_are_left_out_by_name(tmp_path: Path) -> None:
    others = federate(chosen("head_only@lda"), tmp_path / "b", tamper=lambda i, order, reply: [] if i == 1 else [reply])
    assert others.rounds[0]["rejected"][0]["reason"].startswith("head: missing: no sums")
    for number, (spoil, says) in enumerate(LIES):
        record = federate(chosen("head_only@lda"), tmp_path / f"a{number}", tamper=tampering(spoil))
        [refused] = record.rounds[0]["rejected"]
        assert refused["client"] == 1
        assert refused["reason"].startswith(f"head: {says}")
        assert weights(tmp_path / f"a{number}") == weights(tmp_path / "b")


def test_a_class_cannot_be_given_sums_that_no_samples_have() -> None:
    """The totals are right, but one class's sums are longer than its few samples can make them."""
    features, owners = np.random.default_rng(0).normal(size=(50, 3)), (np.arange(50) > 47).astype(int)
    good = sums(torch.from_numpy(features), torch.from_numpy(np.eye(2)[owners]))
    check_sums(good, "classes", 50)
    bad = {name: tensor.clone() for name, tensor in good.items()}
    bad["by_target"][0, 0] -= 40
    bad["by_target"][1, 0] += 40
    with pytest.raises(Refusal, match="no samples with these squares"):
        check_sums(bad, "classes", 50)


def test_without_a_quorum_of_sums_the_round_is_not_written_down(tmp_path: Path) -> None:
    with pytest.raises(QuorumLost, match="head: void 3 times"):
        federate(
            chosen("fedavg@lda"),
            tmp_path / "federated",
            tamper=lambda index, order, reply: [] if order.metadata.message_type == SUMS else [reply],
        )
    assert len(RunRecord(tmp_path / "federated").rounds) == 1
    federate_as_run(chosen("fedavg@lda"), tmp_path)
