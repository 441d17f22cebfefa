"""What a person sees while a command runs: lines, progress, and one line after Ctrl-C."""

import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ecgr.errors import EcgrError
from ecgr.runs.record import RunRecord, absences
from ecgr.runs.runner import Watch
from ecgr.runs.sweep import PlannedRun, duration

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` with control characters made visible, so that a name cannot steer the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


def scores(row: Mapping[str, Any]) -> str:
    """A round's first metric and loss; a record has null where one is not finite.

    >>> scores({"metrics": {"auc": 0.9, "accuracy": 0.8}, "loss": 0.5}), scores({"metrics": {"r2": 0.1}, "loss": None})
    ('auc 0.9000, loss 0.5000', 'r2 0.1000, loss not finite')
    """
    both = [next(iter(row["metrics"].items())), ("loss", row["loss"])]
    return ", ".join(f"{name} {'not finite' if value is None else f'{value:.4f}'}" for name, value in both)


def complain(*lines: str) -> None:
    """One line per problem, to stderr."""
    for line in lines:
        err.print(f"ecgr: {printable(line)}", markup=False, soft_wrap=True)


def say(line: str) -> None:
    """A line of the result, unchanged: not wrapped, no markup."""
    out.print(line, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value for programs to read."""
    say(json.dumps(value))


def print_table(rows: Sequence[Mapping[str, object]], title: str | None = None) -> None:
    """Rows of one kind, under the names of their values."""
    table = Table(*rows[0], title=title, title_justify="left", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row.values()))
    out.print(table)


_came = False


class Interrupted(EcgrError):
    """Ctrl-C was pressed."""

    exit_code = 130


def interrupt(number: int, frame: object) -> NoReturn:
    """The handler of Ctrl-C: the first cleans up, the second ends at once."""
    global _came  # noqa: PLW0603 - a signal is global
    if _came:
        os.write(2, b"ecgr: interrupted twice; left at once\n")
        os._exit(Interrupted.exit_code)
    _came = True
    raise KeyboardInterrupt


def was_interrupted(error: BaseException | None = None) -> bool:
    """Whether Ctrl-C caused an error; raised inside an import it can surface as anything."""
    return _came or isinstance(error, (KeyboardInterrupt, Interrupted))


@contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """Around work that can be continued: after Ctrl-C the line ends with what ``kept`` says."""
    try:
        yield
    except BaseException as error:
        if not was_interrupted(error):
            raise
        raise Interrupted(f"interrupted; {kept()}") from None


def this_command(*more: str) -> str:
    """The command line as it was given, with options that are not there yet."""
    given = sys.argv[1:]
    return shlex.join(["ecgr", *given, *(option for option in more if option not in given)])


@contextmanager
def round_progress(title: str, rounds: int, names: Sequence[str] = ()) -> Iterator[Watch]:
    """Progress of one run, for whoever has each round's line of the record: a bar on a terminal, otherwise lines."""
    began, away = time.monotonic(), set[int]()

    def name(client: int) -> str:
        return "an unknown node" if client < 0 else names[client] if names else f"client {client}"

    numbers = TextColumn("{task.fields[numbers]}")
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), numbers, TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task(title, total=rounds, numbers="")

        def show(row: Mapping[str, Any]) -> None:
            bar.update(task, completed=row["round"], numbers=scores(row))
            here = f"round {row['round']}"
            lines = [f"{here}: {line}" for line in absences(row, away, name)]
            if not err.is_terminal:
                lines.insert(0, f"{here}/{rounds}  {scores(row)}  {time.monotonic() - began:.1f} s")
            for line in lines:
                err.print(line, markup=False)

        yield show


def show_end(record: RunRecord, directory: Path, as_json: bool) -> None:
    """How a run ended: its last round, and where it lies."""
    last = record.rounds[-1]
    if not as_json:
        from ecgr.report.words import promised  # loads scipy

        private = f", {promised(last['privacy'])}" if "privacy" in last else ""
        say(f"{scores(last)} after {last['round']} rounds{private}; {directory}")
        return
    others = {name: last[name] for name in ("loss", "train_loss", "worst_client", "privacy") if name in last}
    run = {"directory": str(directory), "key": record.key, "seed": record.seed, "round": last["round"]}
    print_json({**run, **last["metrics"], **others})


@contextmanager
def sweep_progress(plans: Sequence[PlannedRun]) -> Iterator["SweepDisplay"]:
    """Show the runs: live on a terminal, otherwise a line every ten per cent."""
    display = SweepDisplay(plans)

    def kept() -> str:
        finished = f"{sum(planned.finished for planned in plans)} of {len(plans)} runs are finished"
        return f"{finished}, the others keep their last checkpoint; to continue: {this_command()}"

    live = Live(display, console=err, refresh_per_second=2, transient=True) if err.is_terminal else nullcontext()
    with resumable(kept), live:
        yield display


class SweepDisplay:
    """Many runs as one bar, with the time left; read from the run directories themselves."""

    def __init__(self, plans: Sequence[PlannedRun]) -> None:
        self._plans = plans
        self._began = time.monotonic()
        self._done_before = sum(planned.rounds_done for planned in plans)
        self._to_do = max(1, sum(not planned.finished for planned in plans))
        self._ended = self._tenths = 0
        self._states: dict[str, set[str]] = {"running": set(), "failed": set(), "restarted": set()}

    def __rich__(self) -> Table:
        done, rounds, left = self._left()
        finished = sum(planned.finished for planned in self._plans)
        runs = f"{finished}/{len(self._plans)} runs{self._told(*self._states)}"
        row = Table.grid(padding=(0, 2))
        row.add_row(ProgressBar(rounds, done, width=30), runs, left)
        return row

    def _left(self) -> tuple[int, int, str]:
        """Rounds done, of how many, and about how long the others take."""
        rounds = sum(planned.experiment.federation.rounds for planned in self._plans)
        done = sum(planned.rounds_done for planned in self._plans)
        fresh, seconds = done - self._done_before, time.monotonic() - self._began
        left = fresh and done < rounds
        return done, rounds, f"about {duration(seconds / fresh * (rounds - done))} left" if left else ""

    def _told(self, *states: str) -> str:
        return "".join(f", {len(names)} {state}" for state in states if (names := self._states[state]))

    def __call__(self, planned: PlannedRun, attempt: int) -> None:
        """A run was given to a worker, or (0) ended; without a terminal, a line if it is made again, or every tenth."""
        if attempt:
            self._states["running"].add(planned.name)
            if attempt > 1:
                self._states["restarted"].add(planned.name)
                self._line(f"{planned.name}: its worker died; restarted after {planned.rounds_done} rounds")
            return
        self._states["running"].discard(planned.name)
        if not planned.finished:
            self._states["failed"].add(planned.name)
        self._ended += 1
        if 10 * self._ended // self._to_do > self._tenths:
            self._tenths = 10 * self._ended // self._to_do
            what, left = planned.directory.parent.name, self._left()[2]
            share = f"{what}: {10 * self._tenths} % of {self._to_do}"
            self._line(f"{share}{self._told('failed', 'restarted')}{left and f', {left}'}")

    def _line(self, line: str) -> None:
        if not err.is_terminal:
            err.print(line, markup=False, soft_wrap=True)
