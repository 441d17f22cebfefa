"""Commands on a Ray cluster of two nodes, one of which is killed: the bits of serial, and nothing left behind."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
import pytest

import ecgr
from support.commands import ECGR, environment

pytest.importorskip("ray", reason="the engine ray needs the extra ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SMALL = {"partition.clients": 4, "data.fraction": 0.3}
OPTIONS = [option for key, value in SMALL.items() for option in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and, in each test that wants one, a second node; one CPU each, so that two workers need both."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    made.shutdown()


def begin(*arguments: str | Path, **extra: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [ECGR, *map(str, arguments), *OPTIONS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**extra),
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - tests start no threads
    )


def end(process: "subprocess.Popen[str]") -> str:
    """What it said; it must not hang."""
    try:
        _, errors = process.communicate(timeout=150)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return errors


def wait_for_rounds(process: "subprocess.Popen[str]", folder: Path, runs: int) -> None:
    """Until so many runs below ``folder`` have a round on the disk."""
    while process.poll() is None and sum(path.stat().st_size > 0 for path in folder.rglob("rounds.jsonl")) < runs:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)


def models(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("model.safetensors")}


def test_a_comparison_survives_the_death_of_a_node_to_the_bits_of_serial(cluster: Any, tmp_path: Path) -> None:
    """Two workers on two nodes of one CPU: each has a run, so the node that dies has one, which begins again."""
    rounds = 25
    node = cluster.add_node(num_cpus=1)
    process = begin(
        *("compare", "quickstart", "--seeds", "1", "--set", f"federation.rounds={rounds}", "--out", tmp_path / "ray"),
        *("--engine", "ray", "--ray-address", cluster.address, "--workers", "2"),
    )
    wait_for_rounds(process, tmp_path / "ray", 2)
    cluster.remove_node(node, allow_graceful=False)
    errors = end(process)
    assert process.returncode == 0, errors
    assert "its worker died; begun again" in errors
    ecgr.compare("quickstart", seeds=1, rounds=rounds, settings=SMALL, engine="serial", out=tmp_path / "serial")
    assert len(models(tmp_path / "serial")) == 2
    assert models(tmp_path / "ray") == models(tmp_path / "serial")


def test_rounds_and_runs_over_two_nodes_have_the_bits_of_serial(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    options = ["--engine", "ray", "--workers", "auto", "--set", "federation.rounds=2"]
    run = begin("run", "quickstart", "--out", tmp_path / "ray/one", *options, RAY_ADDRESS=cluster.address)
    errors = end(run)
    assert run.returncode == 0, errors
    ecgr.run("quickstart", settings=SMALL, rounds=2, engine="serial", out=tmp_path / "serial/one")
    compared = begin(
        *("compare", "quickstart", "--seeds", "2", "--ray-address", cluster.address, "--cpus-per-worker", "0.5"),
        *options,
        *("--out", tmp_path / "ray/many"),
    )
    errors = end(compared)
    assert compared.returncode == 0, errors
    ecgr.compare("quickstart", seeds=2, rounds=2, settings=SMALL, engine="serial", out=tmp_path / "serial/many")
    cluster.remove_node(node)
    assert len(models(tmp_path / "serial")) == 5
    assert models(tmp_path / "ray") == models(tmp_path / "serial")


def marked(mark: str) -> list[psutil.Process]:
    """Processes that inherited ``mark`` in their environment."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("ECGR_MARK") == mark:
                found.append(process)
    return found


def test_ctrl_c_leaves_no_process_and_says_how_to_go_on(tmp_path: Path) -> None:
    """On a cluster of its own, which a command starts where it is given none."""
    mark = uuid4().hex
    process = begin(
        *("run", "quickstart", "--out", tmp_path / "run", "--engine", "ray", "--workers", "1"),
        *("--set", "federation.rounds=500"),
        ECGR_MARK=mark,
    )
    wait_for_rounds(process, tmp_path, 1)
    begun = marked(mark)
    assert any("raylet" in process.name() for process in begun)
    os.kill(process.pid, signal.SIGINT)
    errors = end(process)
    assert process.returncode == 130, errors
    assert "to go on: ecgr run quickstart" in errors
    _, alive = psutil.wait_procs({*begun, *marked(mark)}, timeout=20)
    assert alive == []
