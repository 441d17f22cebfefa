"""Real federations on the loopback interface: TLS, node keys, separate processes, and all of them mortal."""

import functools
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from safetensors.torch import load_file

from ecgr.config.experiment import load
from ecgr.config.methods import method_settings
from ecgr.runs.record import RunRecord
from ecgr.tasks.partition import Partition, save_partition
from support.commands import ECGR, ecgr, ecgr_process, environment, rows_without_times
from support.problems import same_bits

pytest.importorskip("flwr", reason="the flower extra is not installed")
from ecgr.flower.audit import events_of
from ecgr.flower.bundles import CONNECTION, sign_app, start_run
from ecgr.flower.fleet import Listed
from ecgr.flower.folders import Plan
from ecgr.flower.guard import Guard
from ecgr.flower.local import Supervisor, installed
from ecgr.flower.server import failure_path
from support.federations import weights
from support.hospitals import write_hospitals
from support.replay import replay

pytestmark = pytest.mark.slow

SITES = 3
METHOD = {"algorithm.name": "scaffold", "regulator.name": "ecgr"}
PATIENCE = 600.0
TORCH_LOADED = 150 * 2**20
"""A ClientApp that is so big is at work; one that is killed before is simply started again by Flower."""


def settings(**more: object) -> list[str]:
    given = {**METHOD, **{key.replace("__", "."): value for key, value in more.items()}}
    return [part for key, value in given.items() for part in ("--set", f"{key}={value}")]


class Running:
    """`ecgr federate local` at work, with its processes."""

    def __init__(self, out: Path, rounds: int, *more: str, name: str = "quickstart", **extra: str) -> None:
        self.out, self.log = out, out.with_suffix(".log")
        command = [ECGR, "federate", "local", name, *settings(federation__rounds=rounds), "--out", str(out), *more]
        # a shell's background jobs ignore Ctrl-C and hand that down
        listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        with self.log.open("wb") as log:
            env = environment(**extra)
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env, preexec_fn=listen)  # noqa: PLW1509
        self.seen: dict[int, psutil.Process] = {}

    def processes(self) -> list[psutil.Process]:
        """Everything it has started that is still there; reparented ones too, by what was seen before."""
        if self.process.poll() is None:
            self.seen |= {child.pid: child for child in psutil.Process(self.process.pid).children(recursive=True)}
        return [child for child in self.seen.values() if alive(child)]

    def find(self, word: str, *, new: bool = False) -> psutil.Process:
        """A process of it with ``word`` in its command line, once there is one; ``new``: not one that is there now."""
        known = {process.pid for process in self.processes()} if new else set()

        def found() -> psutil.Process | None:
            others = (process for process in self.processes() if process.pid not in known)
            return next((process for process in others if word in " ".join(command_line(process))), None)

        process: psutil.Process = self.until(found)
        return process

    def rows(self) -> int:
        return len(RunRecord(self.out).rounds) if self.out.exists() else 0

    def until(self, condition: Callable[[], Any]) -> Any:
        """Wait for ``condition`` while the federation is at work."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)
        return value

    def wait(self) -> int:
        """Its exit code, while what it starts is noted."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.processes()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)
        return self.process.returncode


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


SIZES = (20, 60, 200, 2000)
SITE = """
import numpy as np

def load():
    file = np.load({file!r})
    return (file["inputs"], file["targets"]), (file["test_inputs"], file["test_targets"])
"""
HOSTILE = """
import dataclasses, sys
site = sys.modules.get("ecgr.flower.site")  # only where this is a ClientApp of the federation
"""
REPLIES = """
if site is not None and not hasattr(site, "honest"):
    site.honest = site.reply_records

    def reply(order, upload, **more):
        records = site.honest(order, upload, **more)
        if order.job.round_index == 0:
            arrays = records.array_records["arrays"]
            name = next(name for name in arrays if name.endswith("running_var"))
            arrays[name] = type(arrays[name])(-arrays[name].numpy())
        if order.job.round_index == 1:
            records.config_records["report"]["examples"] = 10**6
        return records

    site.reply_records = reply
"""
ENROLMENT = """
if site is not None and not hasattr(site, "honest"):
    site.honest = site.Enrolment.of

    def claim(*arguments):
        return dataclasses.replace(site.honest(*arguments), examples=10**6)

    site.Enrolment.of = claim
"""


def write_sites(folder: Path, hostile: str = "") -> Path:
    """Four sites of very different size with images of four classes, the second of them perhaps hostile.

    The experiment's path is returned; beside it is what a run on all samples needs.
    """
    rng, parts = np.random.default_rng(0), []
    for name, size in zip("abcd", SIZES, strict=True):
        targets = rng.integers(0, 4, size + 40)
        inputs = (rng.normal(size=(size + 40, 1, 8, 8)) + targets[:, None, None, None]).astype(np.float32)
        parts.append((inputs[:size], targets[:size], inputs[size:], targets[size:]))
        _write_site(folder / "sites" / name / "task.py", *parts[-1], hostile=hostile if name == "b" else "")
    inputs, targets, test_inputs, test_targets = (np.concatenate(each) for each in zip(*parts, strict=True))
    _write_site(folder / "all.py", inputs, targets, test_inputs, test_targets)
    owners = np.split(np.arange(len(targets)), np.cumsum(SIZES)[:-1])
    save_partition(folder / "partition.json", Partition.of(owners), len(targets))
    path = folder / "experiment.toml"
    path.write_text(
        '[data]\nname = "site"\nclasses = 4\n[partition]\nclients = 4\n[model]\nname = "cnn"\nwidth = 0.06\n'
        '[optimizer]\nname = "sgd"\nlr = 0.01\n[federation]\nrounds = 3\nbatch_size = 20\n'
    )
    return path


def _write_site(path: Path, inputs: Any, targets: Any, test_inputs: Any, test_targets: Any, hostile: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.with_suffix(".npz")
    np.savez(file, inputs=inputs, targets=targets, test_inputs=test_inputs, test_targets=test_targets)
    path.write_text(SITE.format(file=str(file)) + (HOSTILE + hostile if hostile else ""))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(rounds: int, *more: str, **extra: str) -> Running:
        started.append(Running(tmp_path / "run", rounds, *more, **extra))
        return started[-1]

    yield begin
    for running in started:
        left = running.processes()
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()
        for process in left:
            if alive(process):
                process.kill()


def nothing_is_left(running: Running) -> bool:
    _, left = psutil.wait_procs(list(running.seen.values()), timeout=15)
    return not [process for process in left if alive(process)]


def federated(folder: Path, hostile: str = "") -> tuple[Path, RunRecord, str]:
    """The federation of `write_sites`, to its end: the experiment, the record, and what was said."""
    experiment = write_sites(folder, hostile)
    done = ecgr("federate", "local", experiment, "--sites", folder / "sites", "--out", folder / "run", "--keep")
    assert done.returncode == 0, done.stderr
    return experiment, RunRecord.open(folder / "run"), done.stderr.replace("\n", " ")


@pytest.mark.nightly
def test_a_federation_gives_the_weights_of_a_run_and_leaves_no_process(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    running = start(3, "--clients", str(SITES))
    assert running.wait() == 0, running.log.read_text()
    assert nothing_is_left(running)
    same = settings(federation__rounds=3, partition__clients=SITES)
    assert ecgr("run", "quickstart", *same, "--out", tmp_path / "simulated").returncode == 0
    assert weights(tmp_path / "run") == weights(tmp_path / "simulated")
    assert rows_without_times(tmp_path / "run") == rows_without_times(tmp_path / "simulated")
    assert not (tmp_path / "run" / ".federation").exists()


@pytest.mark.nightly
def test_four_sites_of_very_different_size_over_tls_gives_the_weights_of_a_run(tmp_path: Path) -> None:
    """20, 60, 200 and 2,000 samples, each at its site alone: nobody is refused for being large or small.

    What the server's log says was received is what the sites' say was sent, message by message.
    """
    experiment, record, _ = federated(tmp_path)
    assert [[client["examples"] for client in row["clients"]] for row in record.rounds] == [[*SIZES]] * 3
    assert [row["rejected"] for row in record.rounds] == [[]] * 3
    whole = f"partition.file={tmp_path / 'partition.json'}"
    task = str(tmp_path / "all.py")
    simulated = ecgr("run", experiment, "--set", whole, "--out", tmp_path / "simulated", ECGR_TASK=task)
    assert simulated.returncode == 0, simulated.stderr
    assert weights(tmp_path / "run") == weights(tmp_path / "simulated")
    logs_agree(tmp_path / "run" / ".federation", ["a", "b", "c", "d"], rounds=3)


def logs_agree(home: Path, names: list[str], rounds: int) -> None:
    server = events_of(home / "server" / "audit")
    (began,), (asked,) = ([event for event in server if event["event"] == what] for what in ("start", "begin"))
    bundle = sha256((home / "server" / "app.fab").read_bytes()).hexdigest()
    assert (began["run"], began["bundle"]) == (asked["run"], bundle)
    assert began["config"] == asked["config"]
    assert [event["used"] for event in server if event["event"] == "round"] == [names] * rounds
    for client, name in enumerate(names):
        site = events_of(home / f"site-{client}" / "audit")
        assert [event["bundle"] for event in site if event["event"] in {"approved", "code"}] == [bundle] * 2
        for ours, theirs in (("received", "sent"), ("sent", "received")):
            here = [told for told in server if told["event"] == ours and told["site"] == name]
            there = [told for told in site if told["event"] == theirs and told["kind"] != "query"]
            assert len(here) == 2 * rounds, "an order to train and one to evaluate, a round"
            facts = ("kind", "round", "sha256", "norm", "bytes", "count", "arrays", "numbers")
            assert [[e[fact] for fact in facts] for e in here] == [[e[fact] for fact in facts] for e in there]


ALTERED = """
import os
if "ECGR_FEDERATION" not in os.environ:  # at a site
    from pathlib import Path
    Path({canary!r}).touch()
"""


@pytest.mark.nightly
def test_code_that_no_approved_key_has_signed_is_refused_and_logged(tmp_path: Path) -> None:
    """Signed by somebody else, and without a signature, as `flwr run` sends it: at no site does a line of it run."""
    chosen = load("quickstart", {"partition.clients": 2})
    plan = Plan(chosen, [Listed("cleveland"), Listed("va")], Guard(), tmp_path / "run")
    supervisor, canary = Supervisor.prepare(plan, print), tmp_path / "canary"
    server = supervisor.home / "server"
    with (server / "app" / "ecgr_federation" / "apps.py").open("a") as file:
        file.write(ALTERED.format(canary=str(canary)))
    logs = [supervisor.home / f"site-{client}" / "audit" for client in range(2)]

    def refused() -> list[int]:
        return [len([e for e in events_of(log) if e["event"] == "refused" and "code" in e["reason"]]) for log in logs]

    try:
        supervisor.start()
        sign_app(server, tmp_path / "other")
        start_run(server)
        until(failure_path(plan.out).exists)
        assert min(refused()) >= 1
        before = refused()
        command = [*installed("flwr"), "run", str(server / "app"), CONNECTION]
        subprocess.run(command, env=supervisor.superlink.environment, check=True)
        until(lambda: all(now > then for now, then in zip(refused(), before, strict=True)))
    finally:
        supervisor.stop()
    assert not canary.exists()
    stranger = json.loads((server / "app.signatures.json").read_text()).keys()
    for log in logs:
        said = [event for event in events_of(log) if event["event"] == "refused"]
        assert {event["bundle"] for event in said} == {sha256((server / "app.fab").read_bytes()).hexdigest()}
        assert {*said[0]["signed_by"]} == stranger
        assert said[-1]["signed_by"] == []
        assert not [event for event in events_of(log) if event["event"] in {"code", "received", "sent"}]
    told = [event for event in events_of(server / "audit") if event["event"] == "refused"]
    assert {event["site"] for event in told} >= {"cleveland", "va"}
    assert all("the site has not approved this code" in event["reason"] for event in told)


@pytest.mark.nightly
def test_a_site_that_is_killed_is_named_and_named_again_when_it_is_back(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    """Four hospitals, each with a folder that has its own file; the server has no data."""
    write_hospitals(tmp_path)
    sites = ["--sites", str(tmp_path / "sites"), "--set", "federation.batch_size=8", "--deadline", "300", "--keep"]
    running = start(500, *sites, name="hospitals/heart_disease", ECGR_DATA="/nowhere")
    running.until(lambda: running.rows() >= 1)
    running.find("site-2 --port").kill()
    running.until(lambda: "switzerland is back" in running.log.read_text())
    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 130
    assert not [path for path in running.out.rglob("*") if "processed" in path.name]
    text = running.log.read_text()
    assert "the SuperNode of switzerland died" in text
    assert re.search(r"switzerland: not used, (failed \(SuperNode gone\)|missing \()", text)
    log = running.out / ".federation" / "server" / "audit"
    named = [event["event"] for event in events_of(log) if event.get("site") == "switzerland"]
    assert "refused" in named
    assert named[::-1].index("received") < named[::-1].index("refused")


@pytest.mark.nightly
def test_a_hostile_site_is_named_and_the_rest_gives_the_weights_of_a_run_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site of 60 samples runs code of its own: negative variances in round 1, a million samples in round 2."""
    experiment, record, said = federated(tmp_path, REPLIES)
    rows = record.rounds
    assert [[client["client"] for client in row["clients"]] for row in rows] == [[0, 2, 3]] * 2 + [[0, 1, 2, 3]]
    reasons = [[(one["client"], one["reason"]) for one in row["rejected"]] for row in rows]
    assert [[client for client, _ in each] for each in reasons] == [[1], [1], []]
    assert "running_var" in reasons[0][0][1]
    assert reasons[1][0][1].startswith("weight: 1000000")
    assert "note: b: rejected in 2 of 3 rounds: weight: 1000000" in said
    monkeypatch.setenv("ECGR_TASK", str(tmp_path / "all.py"))
    expected = replay(load(experiment, {"partition.file": str(tmp_path / "partition.json")}), rows)
    same_model(tmp_path / "run", expected)


def same_model(out: Path, expected: Mapping[str, Any]) -> None:
    final = load_file(out / "model.safetensors")
    assert final.keys() == expected.keys()
    assert all(same_bits(final[name], tensor) for name, tensor in expected.items())


@pytest.mark.nightly
def test_a_site_that_claims_a_million_samples_is_left_out_by_name(tmp_path: Path) -> None:
    """What it says when it joins is held against the list that was written when its data were loaded."""
    _, record, told = federated(tmp_path, ENROLMENT)
    assert [[client["client"] for client in row["clients"]] for row in record.rounds] == [[0, 2, 3]] * 3
    said = "left out: b: examples: it claims 1,000,000, allowed 60 (in the list)"
    assert said in record.manifest["notes"]
    assert f"note: {said}" in told
    assert 'name = "b"\nsamples = 60\n' in (tmp_path / "run" / ".federation" / "server" / "sites.toml").read_text()


@pytest.mark.nightly
def test_whatever_is_killed_the_run_completes(start: Callable[..., Running]) -> None:
    """A ClientApp in round 2, the ServerApp in 3, the SuperLink in 4, a SuperNode in 5."""
    running = start(5, "--clients", str(SITES), "--deadline", "100", "--keep")
    running.until(lambda: running.rows() >= 1)
    client = running.find("flwr-clientapp", new=True)  # not one of round 1 that is only just ending
    running.until(lambda: client.memory_info().rss > TORCH_LOADED)
    client.kill()
    running.until(lambda: running.rows() >= 2)
    psutil.Process(int((running.out / ".holder").read_text())).kill()
    running.until(lambda: running.rows() >= 3)
    running.find("flower-superlink").kill()
    running.until(lambda: running.rows() >= 4)
    running.find("site-2 --port").kill()
    assert running.wait() == 0, running.log.read_text()
    assert nothing_is_left(running)
    text = running.log.read_text()
    assert "the ServerApp died" in text
    assert "the SuperLink died" in text
    assert "the SuperNode of site-" in text

    record = RunRecord.open(running.out)
    assert [row["round"] for row in record.rounds] == [1, 2, 3, 4, 5]
    chosen = load("quickstart", {**METHOD, "federation.rounds": 5, "partition.clients": SITES})
    same_model(running.out, replay(chosen, record.rounds))


@pytest.mark.nightly
def test_ctrl_c_stops_everything_resume_goes_on_and_a_sites_trouble_stays_there(
    start: Callable[..., Running], tmp_path: Path
) -> None:
    """The site of client 1 cannot keep its state: its exception names the place, which only the site knows."""
    canary, place = "site-1/state", tmp_path / "run" / ".federation"
    (place / "site-1").mkdir(parents=True)
    (place / canary).write_text("a file where a directory should be")
    running = start(2, "--clients", str(SITES), "--keep")
    running.until(lambda: running.rows() >= 1)
    running.processes()
    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 130, running.log.read_text()
    assert nothing_is_left(running)

    again = start(2, "--clients", str(SITES), "--keep", "--resume")
    assert again.wait() == 0, again.log.read_text()
    assert nothing_is_left(again)
    rows = RunRecord.open(again.out).rounds
    assert [(row["round"], [c["client"] for c in row["clients"]]) for row in rows] == [(1, [0, 2]), (2, [0, 2])]
    trouble = {"client": 1, "reason": "failed: NotADirectoryError (code 101)"}
    assert [row["rejected"] for row in rows] == [[trouble], [trouble]]
    assert canary in (place / "logs" / "site-1.log").read_text()
    sites = [place / "site-1", place / "logs" / "site-1.log"]
    for path in again.out.rglob("*"):
        if path.is_file() and not any(path.is_relative_to(site) for site in sites):
            assert canary.encode() not in path.read_bytes(), path


@pytest.mark.nightly
def test_a_head_in_closed_form_of_three_processes_is_that_of_a_run(tmp_path: Path) -> None:
    """Sites send sums once, after the last round; the head that they give is the same to the bit."""
    lda = {**method_settings("fedavg@lda"), "federation.rounds": 1, "partition.clients": SITES}
    given = [part for key, value in lda.items() for part in ("--set", f"{key}={value}")]
    for command in (("federate", "local"), ("run",)):
        done = ecgr_process(*command, "quickstart", *given, "--out", str(tmp_path / command[0]), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "federate") == weights(tmp_path / "run")
    assert RunRecord(tmp_path / "federate").rounds[-1]["metrics"] == RunRecord(tmp_path / "run").rounds[-1]["metrics"]
