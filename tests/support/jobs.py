"""Jobs for the process pool; in a module of their own, because a worker imports them by name."""

import os
import signal
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from torch import Tensor

import ecgr


def open_workspace() -> dict[str, int]:
    """A workspace that remembers whose it is."""
    return {"pid": os.getpid(), "jobs": 0}


def answers_of(pool: Any, jobs: list[Any]) -> list[Any]:
    """Every answer, and of squares the number alone."""
    return [answer[0] if isinstance(answer, tuple) else answer for answer in pool.map(jobs)]


@dataclass(frozen=True)
class Square:
    """Answers with its number squared, the process, and how many jobs this workspace has done."""

    number: int
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> tuple[int, int, int]:
        workspace["jobs"] += 1
        return self.number**2, workspace["pid"], workspace["jobs"]


@dataclass(frozen=True)
class Log:
    """Writes its number into a file, so that the order of execution can be read."""

    number: int
    cost: int
    path: Path

    def run(self, workspace: dict[str, int]) -> int:
        with self.path.open("a") as file:
            file.write(f"{self.number}\n")
        return self.number


@dataclass(frozen=True)
class Dies:
    """Its process is killed the first ``times`` times it is run; attempts are counted in a file."""

    path: Path
    times: int
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> str:
        with self.path.open("ab") as file:
            file.write(b".")
            file.flush()
        if self.path.stat().st_size <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"


@dataclass(frozen=True)
class Fails:
    """Raises what a job might raise."""

    message: str
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> None:
        raise ArithmeticError(self.message)


@dataclass(frozen=True)
class KillsParent:
    """The pool's own process dies while this job runs; with a named pipe, once somebody has written into it."""

    cost: int = 1
    pipe: Path | None = None

    def run(self, workspace: dict[str, int]) -> str:
        if self.pipe is not None:
            with self.pipe.open("rb", buffering=0) as pipe:
                pipe.read(1)
        parent = parent_process()
        assert parent is not None and parent.pid is not None
        os.kill(parent.pid, signal.SIGKILL)
        return "nobody reads this"


@dataclass(frozen=True)
class NeverEnds:
    """Writes a byte into a named pipe when it has begun, and goes on for ever."""

    pipe: Path
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> None:
        with self.pipe.open("wb", buffering=0) as pipe:
            pipe.write(b".")
        while True:
            signal.pause()


@dataclass(frozen=True)
class Waits:
    """Answers only when somebody has written a byte into a named pipe."""

    pipe: Path
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> str:
        with self.pipe.open("rb", buffering=0) as pipe:
            pipe.read(1)
        return "late"


@dataclass(frozen=True)
class Holding:
    """Answers with the process and the identity of what it holds there, and with its sum."""

    number: int
    params: Tensor
    own: Tensor
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> tuple[int, int, float]:
        return workspace["pid"], id(self.params), float(self.params.sum() + self.own.sum())


@dataclass(frozen=True)
class Surroundings:
    """Answers with an environment variable, the working directory and the process that this one came from."""

    variable: str
    cost: int = 1

    def run(self, workspace: dict[str, int]) -> tuple[str | None, str, int]:
        return os.environ.get(self.variable), str(Path.cwd()), os.getppid()


@dataclass(frozen=True)
class Origin:
    """Answers with the folder of this package as the worker sees it."""

    cost: int = 1

    def run(self, workspace: dict[str, int]) -> str:
        return str(Path(ecgr.__file__).parent)
