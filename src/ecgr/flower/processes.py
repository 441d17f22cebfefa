"""Processes that we start and must not leave behind.

Each gets a session of its own, so that a Ctrl-C at the terminal reaches us alone and we can stop it in order, and is
told by the kernel to end if we are killed ourselves. What it starts in turn inherits a mark in its environment:
Flower's processes start sessions of their own and outlive their parents, but they cannot take that off.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from ecgr.errors import EnvironmentFault

GRACE_SECONDS = 10.0
MARK = "ECGR_SERVICE"
_TETHERED = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG, SIGTERM
if os.getppid() == int(sys.argv[1]):  # else it has died already, and nobody would tell us
    os.execvp(sys.argv[2], sys.argv[2:])
"""


@dataclass(eq=False)
class Service:
    """A process that can be started, found dead, and started again.

    Attributes:
        name: what it is called in messages.
        command: what to run.
        environment: the whole environment.
        log: where its output is appended.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    _mark: str = field(default_factory=lambda: uuid4().hex)

    def start(self) -> None:
        """Start it, after making sure that nothing of the last start is left."""
        self.stop(grace=0.0)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    _tether(self.command),
                    env={**self.environment, MARK: self._mark},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise EnvironmentFault(f"cannot start {self.name}: {error.strerror or error}") from None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask_to_stop(self) -> None:
        if self.alive:
            self._signal(signal.SIGTERM)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """End it and all that it has started."""
        if self.process is None:
            return
        if grace:
            self.ask_to_stop()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process = None
        until = time.monotonic() + GRACE_SECONDS
        while (left := processes_with(self._mark)) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def last_words(self, lines: int = 3) -> str:
        """The end of its output, on one line."""
        with suppress(OSError):
            return " / ".join(self.log.read_text(errors="replace").split("\n")[-lines - 1 :]).strip(" /")
        return ""

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def processes_with(mark: str) -> list[int]:
    """The processes that carry a mark in their environment, by Linux's /proc; other systems have none."""
    sought, found = f"{MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # gone, or of another user
            if sought in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def free_ports(count: int) -> list[int]:
    """Different free ports of the loopback interface."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def listens(port: int) -> bool:
    """Whether a process accepts connections on a port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _tether(command: Sequence[str]) -> list[str]:
    """``command``, ended by the kernel when this process is; a preexec_fn would not be safe beside torch's threads."""
    tether = [sys.executable, "-S", "-c", _TETHERED, str(os.getpid())]
    return [*tether, *command] if sys.platform == "linux" else list(command)
