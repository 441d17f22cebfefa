"""`ecgr compare` and `ecgr sweep`: many runs, and what they say."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from ecgr.analysis.summaries import read_summaries
from ecgr.cli.console import complain, err, out, print_json
from ecgr.cli.estimating import list_plans
from ecgr.cli.options import Device, ExperimentName, Json, Out, Set, Workers, overrides
from ecgr.compare import PAPER_SEEDS, paired, summaries_of, write_comparison
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.experiment.config import read
from ecgr.runs.sweep import Failure, Planned, execute, grid, plan

if TYPE_CHECKING:
    from ecgr.analysis.metrics import RunSummary

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and for how long; run nothing.")]


def compare_command(
    experiment: ExperimentName = "quickstart",
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds to pair by.")] = ",".join(map(str, PAPER_SEEDS)),
    regulators: Annotated[str | None, typer.Option("--regulators", help="Against none, e.g. ecgr,bherd.")] = None,
    algorithms: Annotated[str | None, typer.Option("--algorithms", help="E.g. fedavg,scaffold.")] = None,
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = 1,
    device: Device = "cpu",
    as_json: Json = False,
    dry_run: DryRun = False,
    treatment: Annotated[
        list[str] | None,
        typer.Option("--treatment", metavar="KEY", help="A config key to compare as regulators are. Repeatable."),
    ] = None,
) -> None:
    """Run regulators paired by seed, then say with statistics whether they helped.

    Given a directory of finished runs, or the summaries.json of an earlier comparison, compares those and runs nothing.
    """
    given = Path(experiment)
    if given.is_dir():
        _conclude(summaries_of([given], treatment or ()), out_dir or given, as_json, [given])
        return
    if given.suffix == ".json" and given.is_file():
        _conclude(read_summaries(given), out_dir or given.parent, as_json)
        return
    experiments = paired(
        experiment,
        seeds=_seeds(seeds),
        regulators=_names(regulators),
        algorithms=_names(algorithms),
        overrides=overrides(settings),
    )
    directory = out_dir or Path("runs") / (experiments[0].run.name or "compare")
    plans = plan(experiments, directory)
    if dry_run:
        list_plans(plans, workers)
        return
    _run_all(plans, workers, device)
    directories = [planned.directory for planned in plans]
    _conclude(summaries_of(directories, treatment or ()), directory, as_json, directories)


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
    _run_all(plans, workers, device)
    out.print(f"{len(plans)} runs finished; {directory}", markup=False, soft_wrap=True)


def _run_all(plans: Sequence[Planned], workers: int, device: str) -> None:
    """Run what is left, showing it; leave with the first failure's code if there is one."""
    display = Progress(plans)
    if err.is_terminal:
        with Live(display, console=err, refresh_per_second=2, transient=True):
            failures = execute(plans, workers=workers, device=device)
    else:
        failures = execute(plans, workers=workers, device=device, done=display.line)
    if failures:
        _report(failures, len(plans))
        raise typer.Exit(failures[0].exit_code)


def _report(failures: Sequence[Failure], total: int) -> None:
    complain(*(f"{failure.name} failed: {failure.reason}" for failure in failures))
    complain(f"{len(failures)} of {total} runs failed; the same command tries them again")


def _conclude(
    summaries: "Sequence[RunSummary]", directory: Path, as_json: bool, directories: Sequence[Path] = ()
) -> None:
    """Compare, write the files and, where there are run directories, the report; show the table."""
    from ecgr.analysis.collect import find_runs
    from ecgr.analysis.comparison import compare
    from ecgr.report.page.html import write_report
    from ecgr.report.presentation import sentence, to_json, to_table

    comparison = compare(summaries)
    write_comparison(comparison, summaries, directory)
    report = directory / "report.html"
    if directories:
        try:
            write_report(find_runs(directories), report)
        except EnvironmentFault as error:  # the numbers are there; without the extra `report` only the page is missing
            complain(f"note: no report page: {error}")
    if as_json:
        print_json(to_json(comparison))
        return
    out.print(to_table(comparison))
    for pair in comparison.pairs:
        out.print(sentence(pair), markup=False, soft_wrap=True)
    out.print(f"{directory / 'comparison.json'}, {directory / 'comparison.csv'}", markup=False, soft_wrap=True)
    if directories and report.exists():
        out.print(f"report: {report}", markup=False, soft_wrap=True)


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


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        raise ConfigError(f"--seeds: {text!r} does not fit; give whole numbers, for example 0,1,42") from None
    if len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise ConfigError(f"--seeds: {text!r} does not fit; give different numbers from 0 up")
    return seeds
