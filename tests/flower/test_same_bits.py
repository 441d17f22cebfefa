"""The Flower apps and `ecgr run` give the same bits and the same record."""

from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from ecgr.config.methods import parse_method
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from ecgr.tasks.losses import LOSSES
from support.commands import rows_without_times
from support.compositions import covering
from support.federations import CLIENTS, experiment, federate
from support.problems import offer, small_net
from support.quick import quick_where


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


OLD = [f"{name}+{regulator}" for name in ("fedavg", "scaffold") for regulator in ("none", "ecgr")]
CLASSES = [name for name in LOSSES if name not in {"bce", "mse"}]
METHODS = list(dict.fromkeys([*OLD, *covering(together=1, losses=CLASSES)]))
"""Every algorithm, server rule, regulator and loss for classes at least once; all pairs: conformance/test_product."""


@pytest.mark.parametrize("method", quick_where(lambda method: method == "scaffold+ecgr", zip(METHODS)))
def test_a_federation_gives_the_weights_and_the_record_of_a_run(method: str, tmp_path: Path) -> None:
    chosen = experiment("fedavg", "none", parse_method(method))
    run(chosen, tmp_path / "simulated")
    record = federate(chosen, tmp_path / "federated")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("simulated", "federated")]
    assert weights[0] == weights[1]
    rows = rows_without_times(tmp_path / "federated")
    assert rows == rows_without_times(tmp_path / "simulated")
    assert [len(row["clients"]) for row in rows] == [CLIENTS - 1] * 3
    assert record.kept() == RunRecord.open(tmp_path / "simulated").kept()
    assert record.key == chosen.key()


@pytest.mark.slow
def test_a_federation_trains_a_head_on_the_features_of_a_run(tmp_path: Path) -> None:
    chosen = experiment("scaffold", changes={"model.trainable": "head"})
    run(chosen, tmp_path / "simulated")
    record = federate(chosen, tmp_path / "federated")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("simulated", "federated")]
    assert weights[0] == weights[1]
    assert rows_without_times(tmp_path / "federated") == rows_without_times(tmp_path / "simulated")
    assert record.rounds[-1]["bytes_up"] < 3 * 4 * 2 * 500  # two vectors of the head, not of the whole


@pytest.mark.slow
def test_a_federation_in_bf16_gives_the_weights_of_a_run_and_not_those_of_float32(tmp_path: Path) -> None:
    chosen = experiment("scaffold", changes={"run.precision": "bf16"})
    run(chosen, tmp_path / "simulated")
    federate(chosen, tmp_path / "federated")
    run(experiment("scaffold"), tmp_path / "float32")
    names = ("simulated", "federated", "float32")
    simulated, federated, float32 = ((tmp_path / name / "model.safetensors").read_bytes() for name in names)
    assert federated == simulated
    assert float32 != simulated


@pytest.mark.slow
def test_what_stays_at_the_sites_and_their_own_scores_are_those_of_a_run(tmp_path: Path) -> None:
    method = parse_method("scaffold+local(part=norm)+finetune(steps=3)")
    chosen = experiment("fedavg", "none", {**method, "partition.test_share": 0.2})
    run(chosen, tmp_path / "simulated")
    federate(chosen, tmp_path / "federated")
    rows = rows_without_times(tmp_path / "federated")
    assert rows == rows_without_times(tmp_path / "simulated")
    assert rows[-1]["own"]["scored"] == CLIENTS
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("simulated", "federated")]
    assert weights[0] == weights[1]
    other = {path.name for path in (tmp_path / "sites").rglob("round-*.state")}
    assert other  # each site keeps its own layers


@pytest.mark.slow
def test_who_answers_first_does_not_matter(tmp_path: Path) -> None:
    chosen = experiment("scaffold")
    federate(chosen, tmp_path / "a" / "run")
    federate(chosen, tmp_path / "b" / "run", arrival=[3, 1, 0, 2])
    weights = [(tmp_path / name / "run" / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
