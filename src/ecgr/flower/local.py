"""A real federation on this machine: SuperLink, SuperNodes, the run, and a supervisor of all of them.

Everything is what it would be on several machines (TLS, a key for every site, processes that know each other by the
network alone), but on the loopback interface. Whatever dies is started again, and the run goes on from its last
checkpoint; at the end, and on Ctrl-C, everything that was started is stopped.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile

from filelock import FileLock, Timeout

from ecgr.errors import EnvironmentFault, install_command, with_code
from ecgr.flower.bundles import approve, read_site, register, start_run
from ecgr.flower.folders import (
    SETTINGS,
    SUPERLINK,
    SUPERNODE,
    Plan,
    public_key,
    write_folders,
)
from ecgr.flower.keys import make_node_key
from ecgr.flower.processes import Service, free_ports, listens
from ecgr.flower.server import failure_path
from ecgr.runs.record import RunRecord, acquire, holder_path
from ecgr.runs.runner import Watch

POLL_SECONDS = 0.5
READY_SECONDS = 120.0
NODE_PAUSE_SECONDS = 5.0
END_SECONDS = 3.0
MAX_FRUITLESS = 8
"""After this many resubmissions without a new round in between it is not bad luck."""

TASK_FILE = "task.py"
"""What loads a site's samples, in its folder of data."""

Say = Callable[[str], None]


def federate(plan: Plan, watch: Watch, say: Say, data: Sequence[Path] = ()) -> RunRecord:
    """Run a plan as a federation of processes on this machine, or go on with it in its run directory.

    Args:
        plan: what to run; every site gets a SuperNode of its own. Keys, logs and the sites' states lie in the run
            directory's ``.federation``.
        watch: called with each round's line of the record.
        say: told what a person should know.
        data: the sites' own folders of data, by client; empty where all sites hold the whole set.
    """
    with ExitStack() as ends:
        # one supervisor a run directory; the lock of the directory itself is the ServerApp's
        ends.callback(acquire(plan.out / ".federation", "supervisor.lock", by="another `ecgr federate`").release)
        supervisor = Supervisor.prepare(plan, say, data)
        ends.callback(supervisor.stop)
        supervisor.start()
        supervisor.look_after(watch)
    return RunRecord.open(plan.out)


@dataclass(eq=False)
class Supervisor:
    """Starts the processes of a federation, looks after them, and stops them.

    Attributes:
        home: the federation's folders, and what its processes say, in ``logs/``.
        out: the run directory.
        port: the SuperLink's.
    """

    home: Path
    out: Path
    say: Say
    port: int
    superlink: Service
    supernodes: list[Service] = field(default_factory=list)

    @classmethod
    def prepare(cls, plan: Plan, say: Say, data: Sequence[Path] = ()) -> "Supervisor":
        """Choose ports and write all files; keys and client states that are there already are kept."""
        home = (plan.out / ".federation").resolve()
        server, logs = home / "server", home / "logs"
        port, *node_ports = free_ports(1 + len(plan.sites))
        write_folders(home, plan, port=port)
        for stale in server.glob("superlink.db*"):
            stale.unlink()  # of an interrupted run: its nodes and messages are nobody's now
        # Where sites have data of their own, the server must do without.
        without = {"ECGR_DATA", "ECGR_TASK"} if data else set()
        given = environment(server, **{SETTINGS: str(server / "server.json")})
        own = {name: value for name, value in given.items() if name not in without}
        command = installed(SUPERLINK, server=server, bind="127.0.0.1", port=port)
        supervisor = cls(home, plan.out, say, port, Service("the SuperLink", command, own, logs / "superlink.log"))
        for client, node_port in enumerate(node_ports):
            site = home / f"site-{client}"
            known_as = read_site(site)["name"]
            if not (site / "node").exists():
                make_node_key(site)  # as the site itself would
            approve(site, site / "signer.pub")
            copyfile(site / "node.pub", public_key(server, known_as))
            command = [*installed(SUPERNODE, site=site), "--port", str(node_port)]
            own = environment(site, ECGR_STATE=str(site / "state"), **(data_places(data[client]) if data else {}))
            log = logs / f"site-{client}.log"
            supervisor.supernodes.append(Service(f"the SuperNode of {known_as}", command, own, log))
        return supervisor

    def start(self) -> None:
        """Start everything and let the sites in."""
        self.start_superlink()
        self.register()
        for node in self.supernodes:
            node.start()

    def register(self) -> None:
        """Let the sites' keys in."""
        for key in sorted(self.home.glob("site-*/node.pub")):
            register(self.home / "server", key)

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
        while True:
            finished = record.finished
            for row in record.rounds[shown:]:
                watch(row)
                shown, fruitless = shown + 1, 0
            if finished:
                return
            if not self.superlink.alive:
                self.say("the SuperLink died; starting it again")
                self.start_superlink()
                submission = None
            elif submission is not None and submission.ended():
                if failure_path(self.out).exists():  # it gave up by itself: so do we, for its reason
                    failure = json.loads(failure_path(self.out).read_bytes())
                    raise with_code(failure["code"], failure["message"])
                self.say("the ServerApp died; submitting the run again")
                submission = None
            if submission is None:
                fruitless += 1
                if fruitless > MAX_FRUITLESS:
                    raise EnvironmentFault(f"the run does not get on; see {self.home / 'logs'}")
                submission = self._submit()
            self._restart_nodes(restart_after)
            time.sleep(POLL_SECONDS)

    def start_superlink(self) -> None:
        """Start the SuperLink and wait until it answers; what the last one had started has died with its session."""
        self.superlink.start()
        until = time.monotonic() + READY_SECONDS
        while not listens(self.port):
            if not self.superlink.alive or time.monotonic() > until:
                raise EnvironmentFault(f"the SuperLink does not start: {self.superlink.last_words()}")
            time.sleep(POLL_SECONDS)

    def _submit(self) -> "Submission | None":
        for path in (holder_path(self.out), failure_path(self.out)):
            path.unlink(missing_ok=True)
        try:
            start_run(self.home / "server")
        except EnvironmentFault:
            if self.superlink.alive:
                raise
            return None
        return Submission(self.out)

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
    """A run that was handed to Flower, and its ServerApp, known by the lock it holds on the run directory.

    Attributes:
        out: the run directory.
        until: when it has ended, or never begun, if nobody is seen in the directory before.
    """

    out: Path
    until: float = field(default_factory=lambda: time.monotonic() + READY_SECONDS)

    def ended(self) -> bool:
        """Whether its ServerApp has stopped working on an unfinished run, or never began to."""
        if RunRecord(self.out).finished:
            return False
        if failure_path(self.out).exists():
            return True
        if not holder_path(self.out).exists():
            return time.monotonic() > self.until
        # the directory is let go a moment before a failure is written down
        self.until = time.monotonic() + END_SECONDS
        try:
            # a process that is killed leaves its name in the directory, but not its lock
            with FileLock(self.out / ".lock", timeout=0):
                return not RunRecord(self.out).finished
        except Timeout:
            return False


def data_places(folder: Path) -> dict[str, str]:
    """Where a site that has its own data in ``folder`` finds them."""
    task = folder.resolve() / TASK_FILE
    return {"ECGR_DATA": str(folder.resolve()), **({"ECGR_TASK": str(task)} if task.is_file() else {})}


def environment(home: Path, **extra: str) -> dict[str, str]:
    """What Flower's processes get: a home of their own, and nothing that talks to anybody else."""
    scripts = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        "OMP_NUM_THREADS": "1",
        **extra,
    }


def installed(command: str, **values: object) -> list[str]:
    """A command of Flower's with its values put in, from the environment that this Python runs in."""
    name, *arguments = (word.format(**values) for word in command.split())
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise EnvironmentFault(f"{name} is not beside {sys.executable}; there: {install_command('flower')}")
    return [str(path), *arguments]
