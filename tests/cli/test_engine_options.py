"""Options of a Ray cluster, and that Ray is imported by nothing but `--engine ray`."""

from pathlib import Path

import pytest

from ecgr.cli.options import work_of
from ecgr.errors import ConfigError
from ecgr.simulation.engines.ray import Cluster
from support.commands import ecgr_process

SMALL = ["--set", "federation.rounds=1", "--set", "partition.clients=3", "--set", "data.fraction=0.2"]


def test_the_options_make_a_cluster() -> None:
    assert work_of("1", "ray", "head:6379", 2.0, 0.25)["engine"] == Cluster("head:6379", cpus=2.0, gpus=0.25)
    assert work_of(engine="ray")["engine"] == Cluster()
    assert work_of(engine="pool")["engine"] == "pool"
    assert work_of() == {"workers": "auto", "engine": None, "device": "cpu"}


@pytest.mark.parametrize("engine", [None, "pool", "serial"])
@pytest.mark.parametrize(
    ("given", "option"),
    [
        (("head:1", None, None), "--ray-address"),
        ((None, 1.0, None), "--cpus-per-worker"),
        ((None, None, 0.0), "--gpus-per-worker"),
    ],
)
def test_options_of_a_cluster_are_refused_without_one(
    engine: str | None, given: tuple[str | None, float | None, float | None], option: str
) -> None:
    with pytest.raises(ConfigError, match=f"{option}: only for a Ray cluster; add --engine ray"):
        work_of("1", engine, *given)


@pytest.mark.parametrize(("cpus", "gpus"), [(0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, -0.5), (1.0, 1.5)])
def test_shares_that_no_worker_can_have_are_refused(cpus: float, gpus: float) -> None:
    with pytest.raises(ConfigError, match="per worker: expected"):
        Cluster(cpus=cpus, gpus=gpus)


@pytest.fixture
def no_ray(tmp_path: Path) -> str:
    """A place on the path where importing ray fails, and leaves a trace."""
    (tmp_path / "path").mkdir()
    trace = tmp_path / "imported"
    (tmp_path / "path" / "ray.py").write_text(f"open({str(trace)!r}, 'w').close()\nraise ImportError('no ray here')\n")
    return str(tmp_path / "path")


@pytest.mark.slow
def test_nothing_else_imports_ray(tmp_path: Path, no_ray: str) -> None:
    assert ecgr_process("--help", PYTHONPATH=no_ray).returncode == 0
    done = ecgr_process("run", "quickstart", "--workers", "1", "--out", tmp_path / "run", *SMALL, PYTHONPATH=no_ray)
    assert done.returncode == 0, done.stderr
    options: list[str | Path] = [
        "--no-tune",
        "--no-references",
        "--seeds",
        "1",
        "--workers",
        "2",
        "--out",
        tmp_path / "compare",
    ]
    done = ecgr_process("compare", "quickstart", *options, *SMALL, PYTHONPATH=no_ray)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "imported").exists()


@pytest.mark.slow
def test_without_ray_it_is_one_clear_line(tmp_path: Path, no_ray: str) -> None:
    command = ["compare", "quickstart", "--no-tune", "--no-references", "--seeds", "6", "--engine", "ray", *SMALL]
    done = ecgr_process(*command, "--out", tmp_path / "out", PYTHONPATH=no_ray)
    assert done.returncode == 5, done.stderr
    assert "the engine ray needs packages of the extra 'ray': pip install" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
