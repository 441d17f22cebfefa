"""Processes that are started, found dead and stopped; submissions that end; and the command around them."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the flower extra is not installed")

from filelock import FileLock
from typer.testing import CliRunner

import ecgr.flower.deploy.local
from ecgr.cli.federating import federate_app
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.flower.apps.server import failure_path
from ecgr.flower.deploy.local import Submission, federate
from ecgr.flower.deploy.processes import Service, free_ports, listens


def python(tmp_path: Path, code: str) -> Service:
    return Service("a process", [sys.executable, "-S", "-c", code], dict(os.environ), tmp_path / "log")


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text()


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_a_service_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    """Also a grandchild in a session of its own that does not listen to SIGTERM."""
    ready = f"open({str(tmp_path / 'ready')!r}, 'w').write('x')"
    child = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {ready}; time.sleep(600)"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", {child!r}], start_new_session=True)
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
child.wait()
"""
    service = python(tmp_path, code)
    service.start()
    try:
        pid = int(wait_for(tmp_path / "child"))
        wait_for(tmp_path / "ready")
    finally:
        service.stop(grace=0.2)
    assert not service.alive
    assert gone(pid)


def test_a_service_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from ecgr.flower.deploy.processes import Service
command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
service = Service("s", command, dict(os.environ), Path({str(tmp_path / "inner")!r}))
service.start()
Path({str(tmp_path / "pid")!r}).write_text(str(service.pid))
time.sleep(600)
"""
    starter = python(tmp_path, code)
    starter.start()
    try:
        pid = int(wait_for(tmp_path / "pid"))
        assert starter.pid is not None
        os.kill(starter.pid, signal.SIGKILL)
        assert gone(pid)
    finally:
        starter.stop(grace=0.0)


def test_a_dead_service_says_how_it_died_and_starts_again(tmp_path: Path) -> None:
    service = python(tmp_path, "print('last words'); raise SystemExit(3)")
    for _ in range(2):
        service.start()
        deadline = time.monotonic() + 30
        while service.alive and time.monotonic() < deadline:
            time.sleep(0.01)
        assert service.exit_code == 3
    assert service.starts == 2
    assert service.last_words() == "last words / last words"
    service.stop()


def test_a_service_that_is_not_there_is_an_environment_fault(tmp_path: Path) -> None:
    service = Service("nothing", [str(tmp_path / "missing")], dict(os.environ), tmp_path / "log")
    service.start()  # the tether starts, and finds nothing
    deadline = time.monotonic() + 30
    while service.alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert service.exit_code != 0
    service.stop()


def test_ports_are_free_and_different() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert not any(listens(port) for port in ports)


def test_a_submission_lives_as_long_as_its_server_holds_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission, holder = Submission(tmp_path), tmp_path / ".holder"
    assert not submission.ended(), "it may still be starting"
    with FileLock(tmp_path / ".lock"):
        holder.write_text("1")
        assert not submission.ended()
    assert submission.ended(), "killed: the name is there, the lock is not"
    holder.unlink()
    assert not submission.ended(), "it has only just let go"
    monkeypatch.setattr(ecgr.flower.deploy.local, "END_SECONDS", -1.0)
    assert submission.ended()
    (tmp_path / "model.safetensors").touch()
    assert not submission.ended(), "finished"


def test_a_submission_that_never_starts_or_gives_up_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecgr.flower.deploy.local, "READY_SECONDS", -1.0)
    assert Submission(tmp_path).ended()
    monkeypatch.undo()
    failure_path(tmp_path).parent.mkdir()
    failure_path(tmp_path).write_text("{}")
    assert Submission(tmp_path).ended()


def test_two_supervisors_do_not_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / ".federation").mkdir()
    refused: Any = None
    with (
        FileLock(tmp_path / ".federation" / "supervisor.lock"),
        pytest.raises(EnvironmentFault, match="in use by another"),
    ):
        federate(refused, tmp_path, refused, refused, refused)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--outliers", "foo"], "--outliers: 'foo' does not fit"),
        (["--min-clients", "0"], "--min-clients: 0 does not fit"),
        (["--deadline", "nan"], "--deadline: nan does not fit"),
        (["--set", "partition.clients=4"], "--clients: 3 sites, but partition.clients is set to 4"),
        (["--clients", "0"], "partition.clients: 0 does not fit"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(federate_app, ["local", "quickstart", *arguments, "--out", "run"])
    assert isinstance(result.exception, ConfigError)
    assert line in str(result.exception)
    assert list(tmp_path.iterdir()) == []
