"""`ecgr compare` and `ecgr sweep`: many runs, and what they say."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from ecgr.cli.console import complain, err, out
from ecgr.cli.estimating import list_plans
from ecgr.cli.options import Device, ExperimentName, Json, Out, Set, Treatment, Workers, overrides
from ecgr.experiment.config import read
from ecgr.runs.sweep import Planned, grid, plan

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and for how long; run nothing.")]


def compare_command(
    experiment: ExperimentName = "quickstart",
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="How many (10, the default, means 0 to 9), or which: 0,1,42 or 3-7.")
    ] = None,
    regulators: Annotated[str | None, typer.Option("--regulators", help="Against none, e.g. ecgr,bherd.")] = None,
    algorithms: Annotated[str | None, typer.Option("--algorithms", help="E.g. fedavg,scaffold.")] = None,
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = 1,
    device: Device = "cpu",
    as_json: Json = False,
    dry_run: DryRun = False,
    treatment: Treatment = None,
) -> None:
    """Run regulators paired by seed, then say with statistics whether they helped.

    Given a directory of finished runs, or the summaries.json of an earlier comparison, compares those and runs nothing.
    """
    from ecgr.compare import compare, planned

    asked: dict[str, Any] = {
        "seeds": seeds,
        "regulators": _names(regulators),
        "algorithms": _names(algorithms),
        "settings": overrides(settings),
        "out": out_dir,
    }
    if dry_run:
        list_plans(planned(experiment, **asked)[0], workers)
        return
    answer = compare(
        experiment,
        **asked,
        treatment=treatment or (),
        workers=workers,
        device=device,
        progress=shown,
        warn=complain,
    )
    if as_json:
        out.print(answer.to_json(), markup=False, soft_wrap=True)
        return
    out.print(answer)
    directory = answer.directory
    assert directory is not None
    out.print(f"{directory / 'comparison.json'}, {directory / 'comparison.csv'}", markup=False, soft_wrap=True)
    if (directory / "report.html").exists():
        out.print(f"report: {directory / 'report.html'}", markup=False, soft_wrap=True)


def sweep_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file with a [grid], or a preset.")],
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = 1,
    device: Device = "cpu",
    dry_run: DryRun = False,
) -> None:
    """Run a grid of experiments; finished runs are skipped, partial ones go on."""
    directory = out_dir or Path("runs") / str(read(file)["run"]["name"])
    plans = plan(grid(file, overrides(settings)), directory)
    if dry_run:
        list_plans(plans, workers)
        return
    from ecgr.compare import run_all

    run_all(plans, workers, device, shown)
    out.print(f"{len(plans)} runs finished; {directory}", markup=False, soft_wrap=True)


@contextmanager
def shown(plans: Sequence[Planned]) -> Iterator[Callable[[Planned], None] | None]:
    """Show the runs under way: live on a terminal, a line for each that ended elsewhere."""
    display = Progress(plans)
    if err.is_terminal:
        with Live(display, console=err, refresh_per_second=2, transient=True):
            yield None
    else:
        yield display.line


class Progress:
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


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
