"""Runs on machines that may not see the folder they belong into.

A machine that finds the token which was laid beside the runs sees the folder, and makes a run there. Any other is
given the run's files, works in a folder of its own, and gives them back after about a minute of rounds; then it is
given them again. Whoever dies, here or there, no more than such a piece is lost, and the folder here always holds a run
that can be gone on with.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from ecgr.files import write_atomically
from ecgr.runs.record import OWN_FILES, locked
from ecgr.runs.runner import Watch
from ecgr.runs.sweep import CHECKPOINTS_APART, Failure, RunJob, Tasks
from ecgr.simulation.engines.pool import Rest

PIECE = 60.0
"""Seconds after which a run's files come back."""

LETTING_GO = 30.0
"""Seconds to wait for a run that another process still holds."""

Files = Mapping[str, bytes]


class Pause(Exception):
    """A piece is long enough."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What a machine answers: whether there is nothing left to do, and the files where it worked on its own.

    Without an end and without files it asks for them.
    """

    ended: bool
    files: Files | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """One run: in its own folder on a machine that sees it, in pieces on any other."""

    job: RunJob
    token: Path
    seconds: float = PIECE
    files: Files | None = None

    @property
    def cost(self) -> int:
        return self.job.cost

    def run(self, workspace: Tasks) -> Piece:
        if self.token.exists():
            wait_until_free(self.job.planned.directory)
            return Piece(ended=True, failure=self.job.run(workspace))
        if self.files is None:
            return Piece(ended=False)
        with TemporaryDirectory(prefix="ecgr-") as folder:
            directory = Path(folder) / self.job.planned.name
            write_files(directory, self.files)
            planned = replace(self.job.planned, directory=directory)
            done, total = planned.rounds_done, planned.experiment.federation.rounds
            checkpoints = range(0, total, planned.experiment.run.checkpoint_every)
            watch = pause_after(self.seconds, [number for number in checkpoints if number > done])
            ended, failure = False, None
            with suppress(Pause):
                # checkpoints are no further apart than pieces are long, so that each piece has one
                apart = min(CHECKPOINTS_APART, self.seconds)
                failure = replace(self.job, planned=planned).run(workspace, watch, apart)
                ended = True
            return Piece(ended, read_files(directory), failure)

    def received(self, answer: Piece) -> Rest | Failure | None:
        """Keep what came back; what is left to do, or how the run ended."""
        directory = self.job.planned.directory
        if answer.files is not None:
            with locked(directory):
                write_files(directory, answer.files)
        return answer.failure if answer.ended else Rest(replace(self, files=answer.files or read_files(directory)))


@contextmanager
def seen_by_others(jobs: Sequence[RunJob], seconds: float = PIECE) -> Iterator[list[RemoteJob]]:
    """The same runs for machines that may not see this one's folders; tokens lie beside the runs meanwhile."""
    name = f".here-{token_hex(16)}"
    folders = {job.planned.directory.resolve().parent for job in jobs}
    try:
        for folder in folders:
            write_atomically(folder / name, b"", durable=False)
        # another process need not be where this one is
        plans = [replace(job.planned, directory=job.planned.directory.resolve()) for job in jobs]
        there = [replace(job, planned=planned) for job, planned in zip(jobs, plans, strict=True)]
        yield [RemoteJob(job, job.planned.directory.parent / name, seconds) for job in there]
    finally:
        for folder in folders:
            (folder / name).unlink(missing_ok=True)


def pause_after(seconds: float, rounds: Collection[int], clock: Callable[[], float] = time.monotonic) -> Watch:
    """Raises `Pause` at the first of these rounds that comes after so long."""
    began = clock()

    def watch(row: Mapping[str, Any]) -> None:
        if row["round"] in rounds and clock() - began >= seconds:
            raise Pause

    return watch


def wait_until_free(directory: Path) -> None:
    """Give a process that lost its machine a while to let go of the run."""
    if (directory / ".lock").exists():
        with suppress(Timeout, OSError), FileLock(directory / ".lock", timeout=LETTING_GO):
            pass


def read_files(directory: Path) -> dict[str, bytes]:
    """The content of a run's files by their path in its folder."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name not in OWN_FILES)
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def write_files(directory: Path, files: Files) -> None:
    """Make a run's folder hold these files; cut short at any moment, it still holds a run that can be gone on with."""
    if "model.safetensors" not in files:  # a finished run that goes on must not look finished
        (directory / "model.safetensors").unlink(missing_ok=True)
    for name in sorted(files, key=_turn):
        path = directory / name
        if not (path.is_file() and path.read_bytes() == files[name]):
            write_atomically(path, files[name])
    for name in read_files(directory):
        if name not in files:
            (directory / name).unlink()


def _turn(name: str) -> tuple[int, str]:
    """What makes a folder a run comes first; what says that something is whole comes after it."""
    last = ("model.safetensors", 3), (".manifest", 2), ("run.json", 0)
    return next((turn for end, turn in last if name.endswith(end)), 1), name
