"""Progress of one run: a bar on a terminal, a plain line a round elsewhere."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ecgr.cli.console import err, scores


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
