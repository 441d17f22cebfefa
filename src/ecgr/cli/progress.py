"""Progress of one run and of many: a bar on a terminal, a plain line a round or a run elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ecgr.cli.console import err, scores
from ecgr.cli.interrupts import resumable, this_command
from ecgr.runs.sweep import Planned


class RoundProgress:
    """A context manager to be called with each round's line of the record."""

    def __init__(self, title: str, rounds: int) -> None:
        self._rounds = rounds
        self._began = time.monotonic()
        self._bar: Progress | None = None
        if err.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
                console=err,
            )
            self._task = self._bar.add_task(title, total=rounds, numbers="")

    def __enter__(self) -> "RoundProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Show one more round."""
        numbers = scores(row)
        if self._bar is not None:
            self._bar.update(self._task, completed=row["round"], numbers=numbers)
        else:
            elapsed = time.monotonic() - self._began
            err.print(f"round {row['round']}/{self._rounds}  {numbers}  {elapsed:.1f} s", markup=False)
        for refusal in row["rejected"]:
            err.print(
                f"round {row['round']}: client {refusal['client']} not used: {refusal['reason']}",
                markup=False,
            )


@contextmanager
def sweep_progress(plans: Sequence[Planned]) -> Iterator[Callable[[Planned], None] | None]:
    """Show the runs under way: live on a terminal, a line for each that ended elsewhere."""
    display = SweepDisplay(plans)
    with resumable(lambda: _kept_runs(plans)):
        if err.is_terminal:
            with Live(display, console=err, refresh_per_second=2, transient=True):
                yield None
        else:
            yield display.line


def _kept_runs(plans: Sequence[Planned]) -> str:
    finished = sum(planned.finished for planned in plans)
    return (
        f"{finished} of {len(plans)} runs are finished, and every round of the others is kept;"
        f" to go on: {this_command()}"
    )


class SweepDisplay:
    """What runs, read from the run directories themselves."""

    def __init__(self, plans: Sequence[Planned]) -> None:
        self._plans = plans
        self._skipped = sum(planned.finished for planned in plans)

    def __rich__(self) -> Table:
        """The live table: runs under way, and how many are done."""
        table = Table("run", "rounds", "", box=None, pad_edge=False)
        finished = 0
        for planned in self._plans:
            if planned.finished:
                finished += 1
            elif rounds := planned.rounds_done:
                total = planned.experiment.federation.rounds
                table.add_row(planned.name, f"{rounds}/{total}", "━" * round(30 * rounds / total))
        table.caption = f"{finished} of {len(self._plans)} runs finished, {self._skipped} of them before"
        table.caption_justify = "left"
        return table

    def line(self, planned: Planned) -> None:
        """One line for a run that ended, where there is no terminal."""
        state = "finished" if planned.finished else "failed"
        err.print(f"{planned.name}: {state} after {planned.rounds_done} rounds", markup=False, soft_wrap=True)
