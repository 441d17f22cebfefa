"""Commands on a Ray cluster of two nodes, and what may be killed: the bits of serial, and nothing left behind."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
import pytest
from safetensors.torch import save_file

import ecgr
from ecgr.config.experiment import load
from ecgr.config.user_code import task_or_name
from ecgr.simulation.engines.ray import Cluster as RayCluster
from support.commands import assert_same_run, spawn
from support.replay import replay

pytest.importorskip("ray", reason="the engine ray needs the extra ray")

pytestmark = pytest.mark.filterwarnings("ignore")

METHODS = "fedavg,fedavg+ecgr"
SMALL = {"partition.clients": 4, "data.fraction": 0.3, "federation.rounds": 20}
OPTIONS = [option for key, value in SMALL.items() for option in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and, in each test that wants one, a second node; one CPU each, so that two workers need both."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def end(process: "subprocess.Popen[str]") -> str:
    """What it said; it must not hang."""
    try:
        _, errors = process.communicate(timeout=150)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return errors


def wait_until(process: "subprocess.Popen[str]", happened: Callable[[], bool]) -> None:
    """Until something has happened; a process that ends before is in error."""
    while not happened():
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
            raise AssertionError(end(process))


def wait_for_rounds(process: "subprocess.Popen[str]", folder: Path, runs: int) -> None:
    """Until so many runs below ``folder`` have a round on the disk."""
    wait_until(process, lambda: sum(path.stat().st_size > 0 for path in folder.rglob("rounds.jsonl")) >= runs)


def models(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("model.safetensors")}


@pytest.fixture
def second(cluster: Any) -> Iterator[Any]:
    """The second node; the test may kill it."""
    node = cluster.add_node(num_cpus=1)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)


def serial(out: Path, seeds: int = 1, **settings: int) -> dict[str, bytes]:
    """The models of a comparison in this process."""
    options: dict[str, Any] = {"settings": SMALL | settings, "tune": False, "references": False, "engine": "serial"}
    ecgr.compare("quickstart", methods=METHODS, seeds=seeds, out=out, **options)
    found = models(out)
    assert len(found) == 2 * seeds
    return found


def compare_on(cluster: Any, out: Path, *options: str | Path, seeds: int = 1) -> "subprocess.Popen[str]":
    """With the address from the environment."""
    words = f"compare quickstart --no-tune --no-references --methods {METHODS} --seeds {seeds} --engine ray"
    return spawn(*words.split(), "--out", out, *OPTIONS, *options, RAY_ADDRESS=cluster.address)


@pytest.mark.nightly
@pytest.mark.parametrize("dies", ["a node", "the command"])
def test_a_comparison_survives_a_death_to_the_bits_of_serial(
    cluster: Any, second: Any, tmp_path: Path, dies: str
) -> None:
    """Two workers on two nodes of one CPU, and two runs: each node has one, and it begins again on the other."""
    process = compare_on(cluster, tmp_path / "ray", "--workers", "2")
    wait_for_rounds(process, tmp_path, 2)
    if dies == "a node":
        cluster.remove_node(second, allow_graceful=False)
    else:
        os.killpg(process.pid, signal.SIGKILL)
        end(process)
        assert len(models(tmp_path)) < 2
        process = compare_on(cluster, tmp_path / "ray", "--workers", "2")
    errors = end(process)
    assert process.returncode == 0, errors
    assert dies == "the command" or "its worker died; restarted" in errors
    assert models(tmp_path / "ray") == serial(tmp_path / "serial")


@pytest.mark.nightly
def test_runs_over_two_nodes_have_the_bits_of_serial(cluster: Any, second: Any, tmp_path: Path) -> None:
    """As many workers as there is room for."""
    few = {"federation.rounds": 2}
    options = ["--cpus-per-worker", "0.5", "--set", "federation.rounds=2"]
    process = compare_on(cluster, tmp_path / "ray", *options, seeds=4)
    errors = end(process)
    assert process.returncode == 0, errors
    assert models(tmp_path / "ray") == serial(tmp_path / "serial", seeds=4, **few)


TASK = """
import os, signal, time
from pathlib import Path
import numpy as np
from torch import nn
import ecgr

GATE, GRAVE = Path({gate!r}), Path({grave!r})
SITES = np.arange(24) % 4

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, inputs):
        if self.training and GRAVE.exists() and inputs[0, 0] == 2:  # the third site's samples
            os.kill(os.getpid(), signal.SIGKILL)
        if self.training and GATE.exists():
            (GATE / str(os.getpid())).touch()
            while GATE.exists():
                time.sleep(0.01)
        return self.linear(inputs)

inputs = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
inputs[:, 0] = SITES
samples = inputs, (inputs[:, 1] > 0).astype(int)
task = ecgr.Task(Model, samples, samples, clients=SITES.astype(str))
"""
CONFIG = {"algorithm.name": "scaffold", "federation.rounds": 2, "federation.batch_size": 3, "optimizer.lr": 0.1}


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    """Clients stop in the middle of a step while the folder `gate` is there, and the third one's process dies in it
    while there is a file `grave`."""
    path = tmp_path / f"task_{uuid4().hex}.py"
    path.write_text(TASK.format(gate=str(tmp_path / "gate"), grave=str(tmp_path / "grave")))
    return path


def test_a_node_that_dies_in_the_middle_of_a_round_costs_nothing(
    cluster: Any, second: Any, task_file: Path, tmp_path: Path
) -> None:
    """Both workers stand in the middle of a step when one's node is killed: its client is trained on the other."""
    gate = tmp_path / "gate"
    gate.mkdir()
    process = spawn(
        *("run", f"{task_file}:task", "--out", tmp_path / "ray", "--workers", "2"),
        *("--engine", "ray", "--ray-address", cluster.address),
        *(option for key, value in CONFIG.items() for option in ("--set", f"{key}={value}")),
    )
    wait_until(process, lambda: len(list(gate.iterdir())) == 2)
    held = [psutil.Process(int(path.name)) for path in gate.iterdir()]
    cluster.remove_node(second, allow_graceful=False)
    wait_until(process, lambda: len(psutil.wait_procs(held, timeout=0.05)[0]) == 1)  # its node took it along
    rmtree(gate)
    errors = end(process)
    assert process.returncode == 0, errors
    ecgr.run(task_or_name(f"{task_file}:task"), tmp_path / "serial", settings=CONFIG, engine="serial")
    assert_same_run(tmp_path / "ray", tmp_path / "serial")


@pytest.mark.nightly
def test_a_client_whose_worker_always_dies_is_lost_and_the_others_go_on(
    cluster: Any, task_file: Path, tmp_path: Path
) -> None:
    """Bits of the recorded participation; the task's file is gone before any node could read it."""
    task = task_or_name(f"{task_file}:task")
    task_file.unlink()
    (tmp_path / "grave").touch()
    settings = {**CONFIG, "federation.rounds": 1}
    record = ecgr.run(task, tmp_path / "ray", settings=settings, engine=RayCluster(address=cluster.address))
    (row,) = record.rounds
    assert [client["client"] for client in row["clients"]] == [0, 1, 3]
    assert row["rejected"] == [{"client": 2, "reason": "lost: the actor that held it died, 2 times"}]
    (tmp_path / "grave").unlink()
    save_file(replay(load(task, settings), record.rounds), tmp_path / "replayed.safetensors")
    assert (tmp_path / "ray/model.safetensors").read_bytes() == (tmp_path / "replayed.safetensors").read_bytes()


def marked(mark: str) -> list[psutil.Process]:
    """Processes that inherited ``mark`` in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("ECGR_MARK") == mark:
                found.append(process)
    return found


@pytest.mark.nightly
def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(tmp_path: Path) -> None:
    """On a cluster of its own, which a command starts where it is given none."""
    mark = uuid4().hex
    process = spawn(
        *("run", "quickstart", "--out", tmp_path / "run", "--engine", "ray", "--workers", "1"),
        *("--set", "federation.rounds=500", "--set", "data.fraction=0.3"),
        ECGR_MARK=mark,
    )
    wait_for_rounds(process, tmp_path, 1)
    begun = marked(mark)
    assert any("raylet" in process.name() for process in begun)
    os.kill(process.pid, signal.SIGINT)
    errors = end(process)
    assert process.returncode == 130, errors
    assert "to continue: ecgr run quickstart" in errors
    _, alive = psutil.wait_procs({*begun, *marked(mark)}, timeout=20)
    assert alive == []
