"""Processes that are started, found dead and stopped; submissions that end; and the command around them."""

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock

import ecgr.flower.local
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.flower.fleet import Listed, read_list
from ecgr.flower.folders import Plan, client_from, read_experiment, write_folders
from ecgr.flower.local import Submission, Supervisor, federate
from ecgr.flower.processes import Service
from ecgr.flower.server import failure_path
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from support.bad_replies import only
from support.commands import sets
from support.federations import federate as federate_in_memory
from support.federations import federating, nodes, weights


def python(tmp_path: Path, code: str) -> Service:
    return Service("a process", [sys.executable, "-S", "-c", code], dict(os.environ), tmp_path / "log")


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


def wait_for(path: Path) -> str:
    return str(until(lambda: path.exists() and path.read_text()))


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


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
    until(lambda: gone(pid))


def test_a_service_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, sys, time
sys.path[:0] = {sys.path!r}
from pathlib import Path
from ecgr.flower.processes import Service
command = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
service = Service("s", command, dict(os.environ), Path({str(tmp_path / "inner")!r}))
service.start()
Path({str(tmp_path / "pid")!r}).write_text(str(service.process.pid))
time.sleep(600)
"""
    starter = python(tmp_path, code)
    starter.start()
    try:
        pid = int(wait_for(tmp_path / "pid"))
        assert starter.process is not None
        starter.process.kill()
        until(lambda: gone(pid))
    finally:
        starter.stop(grace=0.0)


def exit_code(service: Service) -> int | None:
    service.start()
    until(lambda: not service.alive)
    assert service.process is not None
    code = service.process.poll()
    service.stop()
    return code


def test_a_dead_service_says_how_it_died_and_starts_again(tmp_path: Path) -> None:
    service = python(tmp_path, "print('last words'); raise SystemExit(3)")
    assert [exit_code(service), exit_code(service)] == [3, 3]
    assert service.last_words() == "last words / last words"
    missing = Service("nothing", [str(tmp_path / "missing")], dict(os.environ), tmp_path / "log")
    assert exit_code(missing) != 0, "the tether starts, and finds nothing"


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
    submission.until -= ecgr.flower.local.END_SECONDS
    assert submission.ended()
    failure_path(tmp_path).parent.mkdir()
    failure_path(tmp_path).write_text("{}")
    assert Submission(tmp_path).ended(), "it gave up"
    (tmp_path / "model.safetensors").touch()
    assert not submission.ended(), "finished"
    monkeypatch.setattr(ecgr.flower.local, "READY_SECONDS", -1.0)
    assert Submission(tmp_path / "new").ended(), "it never began"


def test_two_supervisors_do_not_share_a_directory(tmp_path: Path) -> None:
    (tmp_path / ".federation").mkdir()
    refused: Any = None
    with (
        FileLock(tmp_path / ".federation" / "supervisor.lock"),
        pytest.raises(EnvironmentFault, match="in use by another"),
    ):
        federate(Plan(refused, refused, refused, tmp_path), refused, refused)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--outliers", "foo"], "--outliers: must be 'reject' or 'clip', got 'foo'"),
        (["--min-clients", "0"], "--min-clients: must be"),
        (["--deadline", "nan"], "--deadline: must be"),
        (["--norm-factor", "0.5"], "--norm-factor: must be"),
        (["--set", "partition.clients=4"], "--clients: 3 sites, but partition.clients is set to 4"),
        (["--clients", "0"], "partition.clients: "),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = federating("local", "quickstart", *arguments, "--out", "run")
    assert isinstance(result.exception, ConfigError)
    assert line in str(result.exception)
    assert list(tmp_path.iterdir()) == []


TASK = """
import numpy as np
from torch import nn
import ecgr
from beside import RULE

table = np.loadtxt("table.csv", delimiter=",", dtype=np.float32)
inputs, targets, site = table[:, :-1], (table[:, -1] > RULE).astype(int), np.arange(len(table)) % 3
train, test = (inputs[:90], targets[:90]), (inputs[90:], targets[90:])


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


task = ecgr.Task(model=net, train=train, test=test, clients=site[:90], name="mine")


def shifting():
    shift = np.random.default_rng().normal(size=(90, 4)).astype(np.float32)
    return ecgr.Task(model=net, train=(inputs[:90] + shift, targets[:90]), test=test, clients=site[:90])
"""


@pytest.fixture
def task_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_task.py").write_text(TASK)
    (tmp_path / "beside.py").write_text("RULE = 0\n")
    np.savetxt(tmp_path / "table.csv", np.random.default_rng(0).normal(size=(120, 5)), delimiter=",")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Plan:
    """What `ecgr federate local` would run."""
    plans: list[Plan] = []

    def note(plan: Plan, *_: Any) -> None:
        plans.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(ecgr.flower.local, "federate", note)
    result = federating("local", *arguments)
    assert plans, result.exception or result.output
    return plans[0]


def test_a_task_in_a_python_file_is_federated_to_the_bits_of_a_run(
    task_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sites are its own clients; every process runs the file for itself, wherever it is started."""
    plan = planned(monkeypatch, "own_task.py:task", "--set", "federation.rounds=2", "--out", "run")
    assert plan.sites == [Listed(f"site-{client}", 30) for client in range(3)]
    write_folders(task_folder / "home", plan)
    app = task_folder / "home" / "server" / "app" / "ecgr_federation" / "task.json"
    monkeypatch.chdir("/")
    sites = nodes(task_folder / "states", range(3))
    federate_in_memory(read_experiment(app), task_folder / "run", app=client_from(app), sites=sites, listed=plan.sites)
    run(plan.experiment, task_folder / "simulated")
    assert weights(task_folder / "run") == weights(task_folder / "simulated")


def test_a_task_that_is_another_in_every_process_is_refused(task_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch, "own_task.py:shifting", "--out", "run")
    write_folders(task_folder / "home", plan)
    with pytest.raises(ConfigError, match=r"own_task\.py:shifting: gives another task each time"):
        read_experiment(task_folder / "home" / "server" / "app" / "ecgr_federation" / "task.json")


@pytest.mark.parametrize("arguments", [["init", "--server", "x.org"], ["check"], ["local", "--sites", "."]])
def test_where_a_python_task_cannot_go_one_is_told(arguments: list[str], task_folder: Path) -> None:
    for name in "ab":
        (task_folder / name).mkdir()
    result = federating(arguments[0], "own_task.py:task", *arguments[1:])
    assert isinstance(result.exception, ConfigError)
    assert "samples" in str(result.exception)
    assert "TOML file" in str(result.exception)


def test_local_writes_the_list_and_keys_for_the_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is on one machine, so the keys are made here; each site's private half is in its own folder."""
    plan = planned(monkeypatch, "quickstart", "--clients", "2", "--out", str(tmp_path / "run"))
    home = Supervisor.prepare(plan, print).home
    assert read_list(home / "server" / "sites.toml") == plan.sites
    assert sum(site.samples or 0 for site in plan.sites) == 1438
    private = [path for path in home.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(path.parent.name for path in private) == ["server", "signing", "site-0", "site-1"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in [home, *home.rglob("*")] if path.is_dir()} == {0o700}


def test_sites_that_were_not_used_are_named_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_memory(plan: Plan, *_: Any) -> RunRecord:
        (plan.out / ".federation").mkdir(parents=True)
        silent = only(1, lambda order, reply: [])
        return federate_in_memory(plan.experiment, plan.out, guard=plan.guard, listed=plan.sites, tamper=silent)

    monkeypatch.setattr(ecgr.flower.local, "federate", in_memory)
    short = sets("federation.rounds=2", "data.fraction=0.2")
    result = federating("local", "quickstart", *short, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.exception
    assert "site-1: rejected in 2 of 2 rounds: missing: no reply within 600 s" in " ".join(result.output.split())


def test_an_edited_list_names_the_sites_of_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(monkeypatch, "quickstart", "--clients", "2", "--out", str(tmp_path / "run"))
    server = Supervisor.prepare(plan, print).home / "server"
    (tmp_path / "run" / "run.json").write_text("{}")
    (server / "sites.toml").write_text((server / "sites.toml").read_text().replace("site-1", "cleveland"))
    again = Supervisor.prepare(plan, print)
    assert again.supernodes[1].name == "the SuperNode of cleveland"
    assert (server / "keys" / "cleveland.pub").read_bytes() == (again.home / "site-1" / "node.pub").read_bytes()
