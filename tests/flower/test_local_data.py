"""Sites that hold their own data: the bits of a run on all files, and a server that never sees a sample."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Context, Message

from ecgr.config.experiment import Experiment, load
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from support.federations import Ticks
from support.hospitals import hospital_experiment, hospital_nodes, write_hospitals
from support.quick import quick_where


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    return tmp_path


def federate(chosen: Experiment, folders: Path, out: Path, sites: list[dict[str, Any]] | None = None) -> RunRecord:
    grid = MemoryGrid(client_app(chosen, local_data=True), sites or hospital_nodes(folders))
    grid.serve(server_app(chosen, out, guard=Guard(deadline=60), clock=Ticks(), local_data=True))
    return RunRecord.open(out)


@pytest.mark.parametrize(
    ("algorithm", "regulator"),
    quick_where(
        lambda *method: method == ("scaffold", "ecgr"), [("fedavg", "ecgr"), ("scaffold", "none"), ("scaffold", "ecgr")]
    ),
)
def test_the_weights_are_those_of_a_run_on_all_files(
    folders: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str, regulator: str
) -> None:
    chosen = hospital_experiment(algorithm, regulator)
    monkeypatch.setenv("ECGR_DATA", "/nowhere")  # the server has none
    record = federate(chosen, folders, folders / "federated")
    run(chosen.replace({"data.root": str(folders / "all")}), folders / "simulated")
    weights = [(folders / name / "model.safetensors").read_bytes() for name in ("federated", "simulated")]
    assert weights[0] == weights[1]
    simulated = RunRecord.open(folders / "simulated")
    assert [[c["examples"] for c in row["clients"]] for row in record.rounds] == [
        [c["examples"] for c in row["clients"]] for row in simulated.rounds
    ]
    assert list(record.rounds[-1]["metrics"]) == ["auc", "accuracy"]
    # Accuracy is a mean over samples, so that of the sites, averaged by their samples, is that of all.
    for ours, theirs in zip(record.rounds, simulated.rounds, strict=True):
        assert ours["metrics"]["accuracy"] == pytest.approx(theirs["metrics"]["accuracy"])
        assert ours["loss"] == pytest.approx(theirs["loss"])
        assert ours["worst_client"] == pytest.approx(theirs["worst_client"])


@pytest.mark.slow
def test_scores_of_sites_on_their_own_samples_are_those_of_a_run(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {"local.name": "local", "local.part": "head", "finetune.name": "finetune", "finetune.steps": 2}
    chosen = hospital_experiment().replace({**parts, "partition.test_share": 0.3})
    monkeypatch.setenv("ECGR_DATA", "/nowhere")
    record = federate(chosen, folders, folders / "federated")
    run(chosen.replace({"data.root": str(folders / "all")}), folders / "simulated")
    simulated = RunRecord.open(folders / "simulated")
    for ours, theirs in zip(record.rounds, simulated.rounds, strict=True):
        assert {key: ours[key] for key in ("metrics", "loss", "own")} == {
            key: theirs[key] for key in ("metrics", "loss", "own")
        }
    assert record.manifest["overlap"] == simulated.manifest["overlap"] == pytest.approx(3 / 7)


@pytest.mark.slow
def test_sites_train_a_head_on_features_of_their_own_samples(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = hospital_experiment().replace({"model.trainable": "head"})
    monkeypatch.setenv("ECGR_DATA", "/nowhere")  # the server has none
    federate(chosen, folders, folders / "federated")
    run(chosen.replace({"data.root": str(folders / "all")}), folders / "simulated")
    weights = [(folders / name / "model.safetensors").read_bytes() for name in ("federated", "simulated")]
    assert weights[0] == weights[1]


def test_the_record_knows_how_many_samples_sites_have_and_no_more(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECGR_DATA", "/nowhere")
    record = federate(hospital_experiment(), folders, folders / "federated")
    assert set(record.manifest["data"]) == {f"site-{client}" for client in range(4)}
    assert [len(row) for row in record.manifest["partition"]] == [1] * 4
    assert "held by the sites" in record.manifest["notes"][0]


def test_a_site_that_cannot_load_its_data_is_named_and_the_others_start(folders: Path) -> None:
    sites = hospital_nodes(folders)
    sites[1]["data-root"] = str(folders / "nowhere")
    record = federate(hospital_experiment(), folders, folders / "federated", sites)
    assert [[client["client"] for client in row["clients"]] for row in record.rounds] == [[0, 2, 3]] * 3
    assert record.manifest["notes"][1].startswith("left out: site-1: ")
    sites[2]["data-root"] = sites[3]["data-root"] = str(folders / "nowhere")
    with pytest.raises(QuorumLost, match=r"enrolment: 1 of 4 sites can take part \(site-1: .*; site-2: .*; site-3: "):
        federate(hospital_experiment(), folders, folders / "lost", sites)


def test_a_share_of_a_sites_data_is_refused_at_the_site(folders: Path) -> None:
    chosen = hospital_experiment().replace({"data.fraction": 0.5})
    with pytest.raises(QuorumLost, match="0 of 4 sites can take part"):
        federate(chosen, folders, folders / "federated")


def test_the_number_of_sites_must_be_known(folders: Path) -> None:
    chosen = load("quickstart").replace({"data.name": "heart_disease", "partition.name": "groups", "model.name": "mlp"})
    with pytest.raises(ConfigError, match=r"partition\.clients: missing"):
        federate(chosen.replace({"partition.clients": None}), folders, folders / "federated")


@pytest.mark.parametrize(
    ("name", "score"), quick_where(lambda name, score: score == 2.47, [("metric/auc", 2.47), ("metric/accuracy", -0.1)])
)
def test_a_score_out_of_range_is_not_used_and_its_site_named(
    folders: Path, monkeypatch: pytest.MonkeyPatch, name: str, score: float
) -> None:
    chosen, honest = hospital_experiment(), client_app(hospital_experiment(), local_data=True)

    def boasting(message: Message, context: Context) -> Message:
        reply = honest(message, context)
        if message.metadata.message_type == "evaluate" and context.node_config["partition-id"] == 2:
            reply.content.metric_records["metrics"][name] = score
        return reply

    monkeypatch.setenv("ECGR_DATA", "/nowhere")
    grid = MemoryGrid(boasting, hospital_nodes(folders))  # type: ignore[arg-type]
    grid.serve(server_app(chosen, folders / "out", guard=Guard(deadline=60), clock=Ticks(), local_data=True))
    for row in RunRecord.open(folders / "out").rounds:
        ((client, reason),) = ((entry["client"], entry["reason"]) for entry in row["rejected"])
        assert (client, reason) == (2, f"evaluation: score: {name} is {score}, allowed 0 to 1")
        assert all(0 <= value <= 1 for value in row["metrics"].values())
