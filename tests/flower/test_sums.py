"""Heads in a federation: the bits of a simulation, and sums of a site that cannot be true are left out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Array, ArrayRecord, Message, RecordDict

from ecgr.algorithms.heads import sums
from ecgr.config.experiment import Experiment
from ecgr.config.methods import method_settings
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.guard import check_sums
from ecgr.flower.memory import Tamper
from ecgr.flower.wire import SUMS, Refusal
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from support.commands import rows_without_times
from support.federations import Ticks, experiment, federate, grid
from support.hospitals import hospital_experiment, hospital_nodes, write_hospitals
from support.problems import offer, small_net


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def chosen(method: str) -> Experiment:
    return experiment("fedavg", "none", {"federation.rounds": 2, "run.served": "average", **method_settings(method)})


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["drift_correction+ecgr@lda", "head_only@ridge"])
def test_the_bits_are_those_of_a_simulation(method: str, tmp_path: Path) -> None:
    made = chosen(method)
    federate(made, tmp_path / "a")
    run(made, tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert rows_without_times(tmp_path / "a") == rows_without_times(tmp_path / "b")


def test_sites_with_their_own_data_send_sums_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_hospitals(tmp_path)
    made = hospital_experiment().replace(method_settings("fedavg@lda"))
    monkeypatch.setenv("ECGR_DATA", "/nowhere")
    memory = MemoryGrid(client_app(made, local_data=True), hospital_nodes(tmp_path))
    memory.serve(server_app(made, tmp_path / "a", guard=Guard(deadline=60), clock=Ticks(), local_data=True))
    run(made.replace({"data.root": str(tmp_path / "all")}), tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    last = RunRecord.open(tmp_path / "a").rounds[-1]
    assert last["without_head"]["metrics"].keys() == last["metrics"].keys()


def test_the_server_takes_steps_on_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0 steps the bits are those without the part; the file is in the record by its hash."""
    write_hospitals(tmp_path)
    own = hospital_experiment().replace({"data.root": str(tmp_path / "all")}).source.load().train
    np.savez(tmp_path / "own.npz", inputs=own.inputs[:20], targets=own.targets[:20])
    monkeypatch.setenv("ECGR_DATA", "/nowhere")

    def federated(method: str, server: Path | None) -> bytes:
        made, out = hospital_experiment(rounds=2).replace(method_settings(method)), tmp_path / method
        memory = MemoryGrid(client_app(made, local_data=True), hospital_nodes(tmp_path))
        memory.serve(server_app(made, out, clock=Ticks(), local_data=True, server=server))
        assert ("server" in RunRecord.open(out).manifest["data"]) == (server is not None)
        return weights(out)

    plain = federated("fedavg", None)
    assert federated("fedavg+server_steps(steps=0)", tmp_path / "own.npz") == plain
    assert federated("fedavg+server_steps", tmp_path / "own.npz") != plain
    with pytest.raises(ConfigError, match="the server has no samples"):
        federated("fedavg+server_steps(steps=2)", None)


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


def in_float32(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    arrays["gram"] = arrays["gram"].astype(np.float32)


def shorter(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    arrays["gram"] = arrays["gram"][:-1]


LIES: list[tuple[Spoil, str]] = [
    (set_to("gram", (0,), np.nan), "nonfinite: gram holds 1"),
    (set_to("gram", (0,), -1.0), "range: gram is no sum of squares"),
    (more_samples, "count: "),
    (set_to("by_target", (2, -1), -1.0), "count: by_target has -1 samples of a class"),
    (set_to("by_target", (2, 0), 1e6), "range: by_target adds up to other sums"),
    (scaled(1000.0), "norm: features of length"),
    (in_float32, "dtype: gram is 'float32', expected float64"),
    (shorter, "shape: gram is"),
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
    silent = grid(chosen("fedavg@lda"), tmp_path, tamper=lambda i, o, r: [] if o.metadata.message_type == SUMS else [r])
    with pytest.raises(QuorumLost, match="head: void 3 times"):
        silent.serve(server_app(chosen("fedavg@lda"), tmp_path / "a", clock=Ticks()))
    assert len(RunRecord(tmp_path / "a").rounds) == 1
    grid(chosen("fedavg@lda"), tmp_path).serve(server_app(chosen("fedavg@lda"), tmp_path / "a", clock=Ticks()))
    run(chosen("fedavg@lda"), tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
