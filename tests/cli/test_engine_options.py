"""Options of a Ray cluster, and that Ray is imported by nothing but `--engine ray`."""

from pathlib import Path
from typing import Any

import pytest

from ecgr.cli.options import work_of
from ecgr.errors import ConfigError
from ecgr.simulation.engines.ray import Cluster
from support.commands import ecgr_process


def test_the_options_make_a_cluster() -> None:
    assert work_of("1", "ray", "head:6379", 2.0, 0.25)["engine"] == Cluster("head:6379", cpus=2.0, gpus=0.25)
    assert work_of(engine="ray")["engine"] == Cluster()
    assert work_of(engine="pool")["engine"] == "pool"
    assert work_of() == {"workers": "auto", "engine": None, "device": "cpu"}


@pytest.mark.parametrize(
    ("given", "option"),
    [(("head:1",), "--ray-address"), ((None, 1.0), "--cpus-per-worker"), ((None, None, 0.0), "--gpus-per-worker")],
)
def test_options_of_a_cluster_are_refused_without_one(given: tuple[Any, ...], option: str) -> None:
    for engine in (None, "pool", "serial"):
        with pytest.raises(ConfigError, match=f"{option}: only for a Ray cluster; add --engine ray"):
            work_of("1", engine, *given)


@pytest.mark.parametrize(("cpus", "gpus"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, -0.5), (1.0, 1.5)])
def test_shares_that_no_worker_can_have_are_refused(cpus: float, gpus: float) -> None:
    with pytest.raises(ConfigError, match="per worker: expected"):
        Cluster(cpus=cpus, gpus=gpus)


@pytest.mark.slow
def test_nothing_but_the_engine_imports_ray_and_without_it_that_is_one_clear_line(tmp_path: Path) -> None:
    """On the path is a ray whose import fails, and leaves a trace."""
    path, trace = tmp_path / "path", tmp_path / "imported"
    path.mkdir()
    (path / "ray.py").write_text(f"open({str(trace)!r}, 'w').close()\nraise ImportError('no ray here')\n")
    words = "quickstart --no-tune --no-references --seeds 1 --workers 2 --set federation.rounds=1"
    command: list[str | Path] = ["compare", *words.split(), "--set", "partition.clients=3", "--out", tmp_path / "out"]
    done = ecgr_process(*command, PYTHONPATH=str(path))
    assert done.returncode == 0, done.stderr
    assert not trace.exists()
    done = ecgr_process(*command[:-1], tmp_path / "ray", "--engine", "ray", PYTHONPATH=str(path))
    assert done.returncode == 5, done.stderr
    assert "the engine ray needs packages of the extra 'ray': pip install" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
