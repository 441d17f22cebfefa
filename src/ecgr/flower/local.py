"""A real federation on this machine: SuperLink, SuperNodes, the run, and somebody who looks after all of them.

Everything is what it would be on several machines (TLS, a key for every site, processes that know each other by the
network alone), but on the loopback interface. Whatever dies is started again, and the run goes on from its last
checkpoint; at the end, and on Ctrl-C, everything that was started is stopped.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ecgr.config import Experiment
from ecgr.errors import ConfigError, DataError, EcgrError, EnvironmentFault, IntegrityError, QuorumLost
from ecgr.flower.bundle import SETTINGS, write_app, write_settings
from ecgr.flower.guard import Guard
from ecgr.flower.keys import make_certificates, make_node_key, read_public_key
from ecgr.flower.processes import Service, free_ports, listens
from ecgr.flower.server import failure_path
from ecgr.record import RunRecord
from ecgr.runner import Watch

CONNECTION = "local"
POLL_SECONDS = 0.5
READY_SECONDS = 120.0
NODE_PAUSE_SECONDS = 5.0
MAX_RESUBMISSIONS = 8
"""So many without a single new round in between, and it is not the weather."""

Say = Callable[[str], None]
BY_CODE: Mapping[int, type[EcgrError]] = {
    error.exit_code: error for error in (ConfigError, DataError, IntegrityError, EnvironmentFault, QuorumLost)
}


@dataclass(eq=False)
class LocalFederation:
    """The processes of one federation, for one run.

    Attributes:
        experiment: what to run.
        out: the run directory; keys, logs and the sites' states lie in its ``.federation``.
        guard: what replies must be like.
        say: told what a person should know.
    """

    experiment: Experiment
    out: Path
    guard: Guard
    say: Say
    superlink: Service = field(init=False)
    supernodes: list[Service] = field(init=False)

    def __post_init__(self) -> None:
        self.home = (self.out / ".federation").resolve()
        clients = range(self.experiment.partition.clients)
        self.port, *node_ports = free_ports(1 + len(clients))
        certificates = self.home / "server"
        if not (certificates / "server.key").exists():
            make_certificates(certificates)
        for client in clients:
            if not (self._site(client) / "node").exists():
                make_node_key(self._site(client))
        keys = {client: read_public_key(self._site(client) / "node.pub") for client in clients}
        write_app(self.home / "app", self.experiment)
        write_settings(self.home / "server.json", self.out, self.guard, keys)
        self._write_connection()
        self.superlink = Service(
            "the SuperLink", self._superlink_command(), self._server_environment(), self.home / "logs" / "superlink.log"
        )
        self.supernodes = [
            Service(
                f"the SuperNode of client {client}",
                self._supernode_command(client, port),
                environment(self._site(client), ECGR_STATE=str(self._site(client) / "state")),
                self.home / "logs" / f"site-{client}.log",
            )
            for client, port in zip(clients, node_ports, strict=True)
        ]

    def run(self, watch: Watch) -> RunRecord:
        """Run to the end, whatever dies meanwhile."""
        try:
            failure_path(self.out).unlink(missing_ok=True)
            for stale in (self.home / "server").glob("superlink.db*"):
                stale.unlink()  # of an interrupted run: its nodes and messages are nobody's now
            self._start_superlink()
            for client in range(len(self.supernodes)):
                self._flwr("supernode", "register", str(self._site(client) / "node.pub"), CONNECTION)
            for node in self.supernodes:
                node.start()
            self._look_after(watch)
        finally:
            self.stop()
        return RunRecord.open(self.out)

    def stop(self) -> None:
        """Stop everything: all are asked at once, then waited for; a second Ctrl-C does not leave half of it behind."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        services = [*self.supernodes, self.superlink]
        for service in services:
            service.ask_to_stop()
        for service in services:
            service.stop()

    def _look_after(self, watch: Watch) -> None:
        record, shown, fruitless = RunRecord(self.out), 0, 0
        submitted = self._submit()
        restart_after = dict.fromkeys(range(len(self.supernodes)), 0.0)
        while not record.finished:
            shown_before, shown = shown, self._show(record, shown, watch)
            fruitless = 0 if shown > shown_before else fruitless
            self._raise_failure()
            again = False
            if not self.superlink.alive:
                self.say("the SuperLink died; starting it again")
                self._start_superlink()
                again = True
            elif self._server_app_gone():
                self.say("the ServerApp died; submitting the run again")
                again = True
            elif not self._holder.exists() and time.monotonic() - submitted > READY_SECONDS:
                self.say("the run did not start; submitting it again")
                again = True
            if again:
                fruitless += 1
                if fruitless > MAX_RESUBMISSIONS:
                    raise EnvironmentFault(f"the run does not get on; see {self.home / 'logs'}")
                submitted = self._submit()
            self._restart_nodes(restart_after)
            time.sleep(POLL_SECONDS)
        self._show(record, shown, watch)

    def _show(self, record: RunRecord, shown: int, watch: Watch) -> int:
        rows = record.rounds
        for row in rows[shown:]:
            watch(row)
        return max(shown, len(rows))

    def _restart_nodes(self, restart_after: dict[int, float]) -> None:
        """Start dead SuperNodes again; Flower refuses a key for a while after its node vanished, so keep trying."""
        for client, node in enumerate(self.supernodes):
            if not node.alive and time.monotonic() >= restart_after[client]:
                if restart_after[client] == 0.0:
                    self.say(f"{node.name} died; starting it again")
                node.start()
                restart_after[client] = time.monotonic() + NODE_PAUSE_SECONDS

    def _raise_failure(self) -> None:
        with suppress(OSError, ValueError):
            failure = json.loads(failure_path(self.out).read_bytes())
            raise BY_CODE.get(failure["code"], EnvironmentFault)(failure["message"])

    @property
    def _holder(self) -> Path:
        return self.out / ".holder"

    def _server_app_gone(self) -> bool:
        """Whether a ServerApp was at work in the run directory and no longer is: its lock died with it."""
        if not self._holder.exists():
            return False
        try:
            with FileLock(self.out / ".lock", timeout=0):
                self._holder.unlink(missing_ok=True)
                return not RunRecord(self.out).finished and not failure_path(self.out).exists()
        except Timeout:
            return False

    def _start_superlink(self) -> None:
        self._holder.unlink(missing_ok=True)  # whoever held it has died with the SuperLink's process group
        self.superlink.start()
        until = time.monotonic() + READY_SECONDS
        while not listens(self.port):
            if not self.superlink.alive or time.monotonic() > until:
                raise EnvironmentFault(f"the SuperLink does not start: {self.superlink.last_words()}")
            time.sleep(POLL_SECONDS)

    def _submit(self) -> float:
        self._flwr("run", str(self.home / "app"), CONNECTION)
        return time.monotonic()

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        command = [str(tool("flwr")), *arguments, "--format", "json"]
        for attempts_left in (2, 1, 0):
            done = subprocess.run(
                command,
                env=self._server_environment(),
                capture_output=True,
                text=True,
                timeout=READY_SECONDS,
                check=False,
            )
            with suppress(ValueError):
                answer: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
                if answer.get("success"):
                    return answer
            if "already" in done.stdout:
                return {}
            if not attempts_left:
                raise EnvironmentFault(f"`flwr {arguments[0]}` failed: {(done.stderr or done.stdout).strip()[-300:]}")
            time.sleep(POLL_SECONDS)
        raise AssertionError("unreachable")

    def _site(self, client: int) -> Path:
        return self.home / f"site-{client}"

    def _write_connection(self) -> None:
        flower_home = self.home / "server" / "flwr"
        flower_home.mkdir(parents=True, exist_ok=True)
        (flower_home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\naddress = "127.0.0.1:{self.port}"\n'
            f"root-certificates = {json.dumps(str(self.home / 'server' / 'ca.crt'))}\n"
        )

    def _server_environment(self) -> dict[str, str]:
        return environment(self.home / "server", **{SETTINGS: str(self.home / "server.json")})

    def _superlink_command(self) -> list[str]:
        server = self.home / "server"
        return [
            str(tool("flower-superlink")),
            *("--host", "127.0.0.1", "--port", str(self.port), "--database", str(server / "superlink.db")),
            *("--ssl-ca-certfile", str(server / "ca.crt"), "--ssl-certfile", str(server / "server.pem")),
            *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
            "--disable-runtime-dependency-installation",
        ]

    def _supernode_command(self, client: int, port: int) -> list[str]:
        return [
            str(tool("flower-supernode")),
            *("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", str(self.home / "server" / "ca.crt")),
            *("--auth-supernode-private-key", str(self._site(client) / "node")),
            *("--host", "127.0.0.1", "--port", str(port), "--node-config", f"partition-id={client}"),
        ]


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
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "OMP_NUM_THREADS": "1",
        **extra,
    }


def tool(name: str) -> Path:
    """One of Flower's commands, from the environment that this Python runs in."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise EnvironmentFault(f"{name} is not beside {sys.executable}; pip install 'ecgr[flower]' there")
    return path
