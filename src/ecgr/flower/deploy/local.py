"""A real federation on this machine: SuperLink, SuperNodes, the run, and somebody who looks after all of them.

Everything is what it would be on several machines (TLS, a key for every site, processes that know each other by the
network alone), but on the loopback interface. Whatever dies is started again, and the run goes on from its last
checkpoint; at the end, and on Ctrl-C, everything that was started is stopped.
"""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from ecgr.config.experiment import Experiment
from ecgr.errors import EnvironmentFault, with_code
from ecgr.flower.apps.server import failure_path
from ecgr.flower.deploy.layout import CONNECTION, Layout, tool
from ecgr.flower.deploy.processes import Service, listens
from ecgr.flower.guard.guard import Guard
from ecgr.runs.place import acquire, holder_path
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import Watch

POLL_SECONDS = 0.5
READY_SECONDS = 120.0
NODE_PAUSE_SECONDS = 5.0
END_SECONDS = 3.0
MAX_FRUITLESS = 8
"""So many resubmissions without a single new round in between, and it is not bad luck."""

Say = Callable[[str], None]


def federate(
    experiment: Experiment, out: Path, guard: Guard, watch: Watch, say: Say, data: Sequence[Path] = ()
) -> RunRecord:
    """Run ``experiment`` as a federation of processes into the run directory ``out``, or go on with it there.

    Args:
        experiment: what to run; every client gets a SuperNode of its own.
        out: the run directory; keys, logs and the sites' states lie in its ``.federation``.
        guard: what replies must be like.
        watch: called with each round's line of the record.
        say: told what a person should know.
        data: the sites' own folders of data, by client; empty where all sites hold the whole set.
    """
    # one supervisor a run directory; the lock of the directory itself is the ServerApp's
    lock = acquire(out / ".federation", "supervisor.lock", by="another `ecgr federate`")
    try:
        supervisor = Supervisor(Layout.prepare(experiment, out, guard, data), out, say)
        try:
            supervisor.start()
            supervisor.look_after(watch)
        finally:
            supervisor.stop()
    finally:
        lock.release()
    return RunRecord.open(out)


@dataclass(eq=False)
class Supervisor:
    """Starts the processes of a federation, looks after them, and stops them."""

    layout: Layout
    out: Path
    say: Say
    superlink: Service = field(init=False)
    supernodes: list[Service] = field(init=False)

    def __post_init__(self) -> None:
        self.superlink = self.layout.superlink()
        self.supernodes = [self.layout.supernode(client) for client in range(len(self.layout.node_ports))]

    def start(self) -> None:
        """Start everything and let the sites in."""
        self.start_superlink()
        for client in range(len(self.supernodes)):
            self.flwr("supernode", "register", str(self.layout.site(client) / "node.pub"), CONNECTION)
        for node in self.supernodes:
            node.start()

    def stop(self) -> None:
        """Stop everything: all are asked at once, then waited for; a second Ctrl-C does not leave half of it behind."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        services = [*self.supernodes, self.superlink]
        for service in services:
            service.ask_to_stop()
        for service in services:
            service.stop()

    def look_after(self, watch: Watch) -> None:
        """Submit the run, and again whenever it ended too early, until it is finished."""
        record, shown, fruitless = RunRecord(self.out), 0, 0
        restart_after = dict.fromkeys(range(len(self.supernodes)), 0.0)
        submission: Submission | None = None
        while not record.finished:
            for row in record.rounds[shown:]:
                watch(row)
                shown, fruitless = shown + 1, 0
            if not self.superlink.alive:
                self.say("the SuperLink died; starting it again")
                self.start_superlink()
                submission = None
            elif submission is not None and submission.ended():
                self._raise_failure()
                self.say("the ServerApp died; submitting the run again")
                submission = None
            if submission is None:
                fruitless += 1
                if fruitless > MAX_FRUITLESS:
                    raise EnvironmentFault(f"the run does not get on; see {self.layout.logs}")
                submission = self._submit()
            self._restart_nodes(restart_after)
            time.sleep(POLL_SECONDS)
        for row in record.rounds[shown:]:
            watch(row)

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers; what the last one had started has died with its session."""
        self.superlink.start()
        until = time.monotonic() + READY_SECONDS
        while not listens(self.layout.port):
            if not self.superlink.alive or time.monotonic() > until:
                raise EnvironmentFault(f"the SuperLink does not start: {self.superlink.last_words()}")
            time.sleep(POLL_SECONDS)

    def flwr(self, *arguments: str) -> None:
        """Run one of Flower's commands against the SuperLink."""
        done = subprocess.run(
            [str(tool("flwr")), *arguments, "--format", "json"],
            env=self.layout.server_environment(),
            capture_output=True,
            text=True,
            timeout=READY_SECONDS,
            check=False,
        )
        with suppress(ValueError):
            if json.loads(done.stdout[done.stdout.index("{") :]).get("success"):
                return
        raise EnvironmentFault(f"`flwr {arguments[0]}` failed: {(done.stderr or done.stdout).strip()[-300:]}")

    def _submit(self) -> "Submission | None":
        for path in (holder_path(self.out), failure_path(self.out)):
            path.unlink(missing_ok=True)
        try:
            self.flwr("run", str(self.layout.home / "app"), CONNECTION)
        except (EnvironmentFault, subprocess.TimeoutExpired):
            if self.superlink.alive:
                raise
            return None
        return Submission(self.out)

    def _raise_failure(self) -> None:
        """If the ServerApp gave up by itself, so do we, for its reason."""
        try:
            failure = json.loads(failure_path(self.out).read_bytes())
        except (OSError, ValueError):
            return
        raise with_code(failure["code"], failure["message"])

    def _restart_nodes(self, restart_after: dict[int, float]) -> None:
        """Start dead SuperNodes again; Flower refuses a key for a while after its node vanished, so keep trying."""
        for client, node in enumerate(self.supernodes):
            if not node.alive and time.monotonic() >= restart_after[client]:
                if restart_after[client] == 0.0:
                    self.say(f"{node.name} died; starting it again")
                node.start()
                restart_after[client] = time.monotonic() + NODE_PAUSE_SECONDS


@dataclass(eq=False)
class Submission:
    """A run that was handed to Flower, and its ServerApp, known by the lock it holds on the run directory."""

    out: Path
    _since: float = field(default_factory=time.monotonic)
    _last_seen: float | None = None

    def ended(self) -> bool:
        """Whether its ServerApp has stopped working on an unfinished run, or never began to."""
        if RunRecord(self.out).finished:
            return False
        if failure_path(self.out).exists():
            return True
        now = time.monotonic()
        if not holder_path(self.out).exists():
            # the directory is let go a moment before a failure is written down
            return now - self._since > READY_SECONDS if self._last_seen is None else now - self._last_seen > END_SECONDS
        self._last_seen = now
        try:
            # a process that is killed leaves its name in the directory, but not its lock
            with FileLock(self.out / ".lock", timeout=0):
                return not RunRecord(self.out).finished
        except Timeout:
            return False
