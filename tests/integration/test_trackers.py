"""What a tracker has of a comparison, read back by its own library: real ones, from runs that were made before."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ecgr
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.runs import trackers

NAMES = {"fedavg seed 0", "fedavg seed 1", "fedavgm seed 0", "fedavgm seed 1"}
SMALL = {"partition.clients": 3, "data.fraction": 0.3}
Curves = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> ecgr.Answer:
    few: dict[str, Any] = {"seeds": 2, "rounds": 3, "tune": False, "references": False, "engine": "serial"}
    out = tmp_path_factory.mktemp("compare-small")
    return ecgr.compare("quickstart", methods=["fedavg", "fedavgm"], settings=SMALL, out=out, **few)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """How often somebody asked the network for something: all that is asked goes to a proxy that counts."""
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_PROJECT", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    taken: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
        server.settimeout(0.05)
        done = threading.Event()

        def listen() -> None:
            while not done.is_set():
                try:
                    taken.append(server.accept())
                except TimeoutError:
                    continue

        listener = threading.Thread(target=listen)
        listener.start()
        yield lambda: len(taken)
        done.set()
        listener.join()


def of_mlflow(place: Path) -> tuple[dict[str, Curves], set[str]]:
    """Curves by run, and the files of the answer."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{place / 'mlflow' / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == place.name]
    curves: dict[str, Curves] = {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.status == "FINISHED"
        history = {key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}
        curves[run.info.run_name] = {
            key: [(point.step, point.value) for point in points] for key, points in history.items()
        }
        if run.info.run_name == "answer":
            files = {each.path for each in client.list_artifacts(run.info.run_id)}
            assert run.data.params["verdict fedavgm"] == "too few seeds"
        else:
            assert run.data.params["federation.rounds"] == "3"
    return curves, files


def of_wandb(place: Path) -> tuple[dict[str, Curves], set[str]]:
    messages: Any = import_module("wandb.proto.wandb_internal_pb2")
    stored: Any = import_module("wandb.sdk.internal.datastore")
    curves: dict[str, Curves] = {}
    for path in place.glob("wandb/offline-run-*/*.wandb"):
        store, own, steps = stored.DataStore(), Curves(), {}
        store.open_for_scan(str(path))
        while (content := store.scan_data()) is not None:
            record = messages.Record()
            record.ParseFromString(content)
            if record.WhichOneof("record_type") == "run" and record.run.display_name:
                name, group = record.run.display_name, record.run.run_group
                facts = {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if record.WhichOneof("record_type") == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                steps[row["_step"]] = row
        for step, row in steps.items():
            for key, value in row.items():
                own.setdefault(key, []).append((step, value))
        curves[name] = own
        assert group == place.name
        if name == "answer":
            files = {each.name for each in (path.parent / "files").iterdir()}
        else:
            assert facts["federation.rounds"] == 3
    return curves, files


def of_tensorboard(place: Path) -> tuple[dict[str, Curves], set[str]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curves: dict[str, Curves] = {}
    files: set[str] = set()
    for folder in (place / "tensorboard").iterdir():
        read = EventAccumulator(str(folder)).Reload()
        tags = set(read.Tags()["tensors"])
        texts = {tag for tag in tags if tag == "facts" or "." in tag}
        curves[folder.name.replace("_", " ")] = {
            tag: [(event.step, event.tensor_proto.float_val[0]) for event in read.Tensors(tag)] for tag in tags - texts
        }
        if folder.name == "answer":
            files = texts
    return curves, files


READERS = {"mlflow": of_mlflow, "wandb": of_wandb, "tensorboard": of_tensorboard}


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", ["mlflow", pytest.param("wandb", marks=pytest.mark.nightly), "tensorboard"])
def test_a_tracker_has_each_run_and_the_answer_once(name: str, compared: ecgr.Answer, calls: Callable[[], int]) -> None:
    pytest.importorskip(name, reason="the extra track is not installed")
    place = compared.directory
    assert place is not None
    assert not any((place / each).exists() for each in (name, f"{name}.db"))  # unless asked
    for _ in range(2):
        ecgr.compare(place, track=name)
    curves, files = READERS[name](place)
    assert set(curves) == {*NAMES, "answer"}
    assert {"comparison.json", "comparison.csv"} <= files
    assert name == "tensorboard" or "report.html" in files
    for run in compared.runs:
        own = curves[f"{run.summary.method} seed {run.summary.seed}"]
        for key in ("accuracy", "loss"):
            expected = [(row["round"], {**row["metrics"], **row}[key]) for row in run.rounds]
            assert [step for step, _ in own[key]] == [step for step, _ in expected]
            assert [value for _, value in own[key]] == pytest.approx([value for _, value in expected], rel=1e-6)
    assert calls() == 0


def test_a_run_is_tracked_while_it_runs_and_when_it_is_finished_already(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    out, seen = tmp_path / "one", []
    with trackers.tracked("tensorboard", out) as watch:

        def watched(row: Any) -> None:
            watch(row)
            seen.append(sorted((out / "tensorboard").iterdir()))

        ecgr.run("quickstart", out, settings=SMALL, rounds=2, watch=watched)
    live = rounds_of(out)
    assert len(seen) == 2
    assert seen[0] == seen[1] != []
    with trackers.tracked("tensorboard", out) as watch:
        ecgr.run("quickstart", out, settings=SMALL, rounds=2, resume=True, watch=watch)
    assert live == rounds_of(out) == [1, 2]


def rounds_of(out: Path) -> list[int]:
    (curves,) = of_tensorboard(out)[0].values()
    return [step for step, _ in curves["accuracy"]]


def test_what_is_not_there_is_said_before_anything_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="track: unknown tracker 'mlfow'; did you mean 'mlflow'"):
        ecgr.compare("quickstart", track="mlfow", out=tmp_path / "new")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match="the tracker wandb needs packages of the extra 'track'"):
        ecgr.compare("quickstart", track="wandb", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
