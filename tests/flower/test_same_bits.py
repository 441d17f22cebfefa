"""The Flower apps and `ecgr run` give the same bits and the same record, whatever the method and whoever has the data.

Sites that hold their own data give the bits of a run on all files, and their server never sees a sample.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.config.experiment import load
from ecgr.config.methods import parse_method
from ecgr.errors import ConfigError, QuorumLost
from ecgr.runs.runner import run
from ecgr.tasks.losses import LOSSES
from support.compositions import covering
from support.federations import CLIENTS, experiment, federate_as_run, nodes, weights
from support.hospitals import federate_hospitals, hospital_experiment, hospital_nodes, write_hospitals
from support.private import linear
from support.problems import offer, small_net
from support.quick import quick_where


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net, without_buffers=linear)


OLD = [f"{name}+{regulator}" for name in ("fedavg", "scaffold") for regulator in ("none", "ecgr")]
CLASSES = [name for name in LOSSES if name not in {"bce", "mse"}]
METHODS = list(dict.fromkeys([*OLD, *covering(together=1, losses=CLASSES)]))
"""Every algorithm, server rule, regulator and loss for classes at least once; all pairs: conformance/test_product."""


@pytest.mark.parametrize("method", quick_where(lambda method: method == "scaffold+ecgr", zip(METHODS)))
def test_a_federation_gives_the_weights_and_the_record_of_a_run(method: str, tmp_path: Path) -> None:
    chosen = experiment("fedavg", "none", parse_method(method))
    record = federate_as_run(chosen, tmp_path)
    assert [len(row["clients"]) for row in record.rounds] == [CLIENTS - 1] * 3
    assert record.key == chosen.key()


SERVED = {"federation.rounds": 2, "run.served": "average"}
PRIVATE = {"model.name": "without_buffers", "federation.participation": 1.0}
OTHERS: dict[str, dict[str, Any]] = {
    "drift_correction+ecgr@lda": SERVED,
    "head_only@ridge": SERVED,
    "fedavgm+dp(clip=0.2, noise=0, quantile=0.5)+ecgr": PRIVATE,
    "scaffold+local(part=norm)+finetune(steps=3)": {"partition.test_share": 0.2},
    "scaffold": {"run.precision": "bf16"},
    "scaffold+ecgr": {"model.trainable": "head"},
}


@pytest.mark.parametrize("method", quick_where(lambda method: "@" in method or "dp" in method, zip(OTHERS)))
def test_heads_privacy_and_what_stays_at_the_sites_are_those_of_a_run(method: str, tmp_path: Path) -> None:
    record = federate_as_run(experiment("fedavg", "none", {**parse_method(method), **OTHERS[method]}), tmp_path)
    last = record.rounds[-1]
    if "dp" in method:
        assert [row["privacy"]["counted"] for row in record.rounds] == [1, 2, 3]
    if "local" in method:
        assert last["own"]["scored"] == CLIENTS
        assert list((tmp_path / "sites").rglob("round-*.state")), "each site keeps its own layers"
    if "model.trainable" in OTHERS[method]:
        assert last["bytes_up"] < 3 * 4 * 2 * 500, "two vectors of the head, not of the whole"


@pytest.mark.slow
def test_very_different_sites_that_answer_in_any_order_have_the_bits_of_a_run(tmp_path: Path) -> None:
    """The shipped quickstart, where one site has 1,087 of 1,438 samples."""
    changes = {"partition.name": "quantity", "partition.alpha": 0.2, "partition.clients": 4, "partition.min_batches": 1}
    method = parse_method("scaffold+ecgr")
    chosen = load("quickstart").replace({**changes, "run.seed": 3, "federation.rounds": 3, **method})
    record = federate_as_run(chosen, tmp_path, arrival=[3, 1, 0, 2])
    assert max(client["examples"] for client in record.rounds[0]["clients"]) == 1087


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    write_hospitals(tmp_path)
    return tmp_path


OWN_SCORES = {"partition.test_share": 0.3}
HOSPITALS: dict[str, dict[str, Any]] = {
    "scaffold+ecgr": {},
    "fedavg@lda": {},
    "fedavg": {"model.trainable": "head"},
    "fedavg+local(part=head)+finetune(steps=2)": OWN_SCORES,
}


@pytest.mark.parametrize("method", quick_where(lambda method: HOSPITALS[method] == {}, zip(HOSPITALS)))
def test_hospitals_give_the_weights_of_a_run_on_all_files(folders: Path, method: str) -> None:
    chosen = hospital_experiment().replace({**parse_method(method), **HOSPITALS[method]})
    record = federate_hospitals(chosen, folders, folders / "federated")
    simulated = run(chosen.replace({"data.root": str(folders / "all")}), folders / "simulated")
    assert weights(folders / "federated") == weights(folders / "simulated")
    for ours, theirs in zip(record.rounds, simulated.rounds, strict=True):
        assert [c["examples"] for c in ours["clients"]] == [c["examples"] for c in theirs["clients"]]
        assert list(ours["metrics"]) == ["auc", "accuracy"]
        # Accuracy is a mean over samples, so that of the sites, averaged by their samples, is that of all.
        assert ours["metrics"]["accuracy"] == pytest.approx(theirs["metrics"]["accuracy"])
        assert ours["loss"] == pytest.approx(theirs["loss"])
        assert ours["worst_client"] == pytest.approx(theirs["worst_client"])
        assert ours.get("own") == theirs.get("own")
    assert ("without_head" in record.rounds[-1]) == ("@" in method)
    assert record.manifest.get("overlap") == simulated.manifest.get("overlap")
    assert set(record.manifest["data"]) == {f"site-{client}" for client in range(4)}
    assert [len(row) for row in record.manifest["partition"]] == [1] * 4, "how many samples each has, and no more"
    assert "held by the sites" in record.manifest["notes"][0]


def test_the_server_takes_steps_on_a_file_of_its_own(folders: Path) -> None:
    """With 0 steps the bits are those without the part; the file is in the record by its hash."""
    own = hospital_experiment().replace({"data.root": str(folders / "all")}).source.load().train
    np.savez(folders / "own.npz", inputs=own.inputs[:20], targets=own.targets[:20])

    def federated(method: str, server: Path | None) -> bytes:
        chosen, out = hospital_experiment(rounds=2).replace(parse_method(method)), folders / method
        record = federate_hospitals(chosen, folders, out, server=server)
        assert ("server" in record.manifest["data"]) == (server is not None)
        return weights(out)

    plain = federated("fedavg", None)
    assert federated("fedavg+server_steps(steps=0)", folders / "own.npz") == plain
    assert federated("fedavg+server_steps", folders / "own.npz") != plain
    with pytest.raises(ConfigError, match="the server has no samples"):
        federated("fedavg+server_steps(steps=2)", None)


def test_a_site_that_cannot_load_its_data_is_named_and_the_others_start(folders: Path) -> None:
    sites = hospital_nodes(folders)
    sites[1]["data-root"] = str(folders / "nowhere")
    record = federate_hospitals(hospital_experiment(), folders, folders / "federated", sites=sites)
    assert [[client["client"] for client in row["clients"]] for row in record.rounds] == [[0, 2, 3]] * 3
    assert record.manifest["notes"][1].startswith("left out: site-1: ")
    sites[2]["data-root"] = sites[3]["data-root"] = str(folders / "nowhere")
    with pytest.raises(QuorumLost, match=r"enrolment: 1 of 4 sites can take part \(site-1: .*; site-2: .*; site-3: "):
        federate_hospitals(hospital_experiment(), folders, folders / "lost", sites=sites)


def test_a_share_of_a_sites_data_is_refused_and_the_number_of_sites_must_be_known(folders: Path) -> None:
    with pytest.raises(QuorumLost, match="0 of 4 sites can take part"):
        federate_hospitals(hospital_experiment().replace({"data.fraction": 0.5}), folders, folders / "a")
    chosen = load("quickstart").replace({"data.name": "heart_disease", "partition.name": "groups", "model.name": "mlp"})
    with pytest.raises(ConfigError, match=r"partition\.clients: missing"):
        federate_hospitals(chosen.replace({"partition.clients": None}), folders, folders / "b", sites=nodes(folders))
