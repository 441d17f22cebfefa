"""`ecgr compare`: `ecgr.compare` on the command line."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecgr.cli import options
from ecgr.cli.console import complain, out, say, sweep_progress
from ecgr.cli.next_steps import next_step, open_page
from ecgr.cli.options import chosen_engine, overrides, parse_value
from ecgr.cli.running import list_plans
from ecgr.config.methods import split_methods
from ecgr.config.user_files import task_or_name
from ecgr.errors import ConfigError
from ecgr.runs.workers import worker_count

if TYPE_CHECKING:
    from ecgr.compare import Answer


def compare_command(
    experiment: options.ExperimentName = "quickstart",
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="What is compared, e.g. 'fedavg,scaffold(damping=0.5)/lookahead'; by default"
            " fedavg,fedavgm(server_momentum=0.5),drift_correction,fedavg+ecgr.",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What the others are compared with; the first method by default.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="How many (10, the default, means 0 to 9), or which: 0,1,42 or 3-7.")
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option("--tune", metavar="KEY=VALUES", help="Choose the best value for each method first. Repeatable."),
    ] = None,
    settings: options.Set = None,
    out_dir: options.Out = None,
    workers: options.Workers = "auto",
    engine: options.EngineName = None,
    ray_address: options.RayAddress = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    device: options.Device = "cpu",
    as_json: options.Json = False,
    open_it: options.OpenPage = False,
    dry_run: options.DryRun = False,
) -> None:
    """Run methods paired by seed, then say with statistics which of them helped.

    Given a directory of finished runs, or the summaries.json of an earlier comparison, analyses those and runs nothing.
    """
    from ecgr.compare import compare
    from ecgr.compare.analyse import is_finished
    from ecgr.compare.plan import plan_comparison

    asked: dict[str, Any] = {
        "methods": None if methods is None else split_methods(methods),
        "seeds": seeds,
        "settings": overrides(settings),
        "tune": grid_of(tune or []),
        "out": out_dir,
    }
    chosen = chosen_engine(engine, ray_address, cpus_per_worker, gpus_per_worker)
    source = task_or_name(experiment)
    if dry_run:
        if is_finished(source):
            raise ConfigError(f"--dry-run: {source} is only analysed, not run; leave out --dry-run")
        planned = plan_comparison(source, baseline, **asked)
        from ecgr.simulation.engines import engine_kind  # loads torch

        count = worker_count(workers)
        engine_kind(chosen, count)
        say(planned.power)
        if planned.tuned:
            say(planned.budget)
        list_plans([*planned.tuning, *planned.runs], count)
        return
    answer = compare(
        source,
        baseline,
        **asked,
        workers=workers,
        engine=chosen,
        device=device,
        progress=sweep_progress,
        warn=complain,
    )
    if as_json:
        say(answer.to_json())
    else:
        show_answer(answer, () if is_finished(source) else sys.argv[1:])
    if open_it and answer.directory is not None:
        open_page(answer.directory / "report.html")


def show_answer(answer: "Answer", arguments: Sequence[str]) -> None:
    """The sentences, the picture and the table, where the files are, and what to do next if a command made the runs."""
    out.print(answer)
    directory = answer.directory
    assert directory is not None
    say(f"{directory / 'comparison.json'}, {directory / 'comparison.csv'}")
    if (directory / "report.html").exists():
        say(f"report: {directory / 'report.html'}")
    if arguments and (next_line := next_step(answer.pairs, arguments)):
        say(next_line)


def grid_of(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """``KEY=VALUE,VALUE`` as values to choose from.

    >>> grid_of(["optimizer.lr=0.01,0.03", "schedule.name=step,cosine"])
    {'optimizer.lr': [0.01, 0.03], 'schedule.name': ['step', 'cosine']}
    """
    grid: dict[str, list[Any]] = {}
    for assignment in assignments:
        key, equals, values = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--tune: {assignment!r} does not fit; give KEY=VALUES, as in optimizer.lr=0.01,0.03")
        if key.strip() in grid:
            raise ConfigError(f"--tune: {key.strip()} is given twice; put its values in one list")
        grid[key.strip()] = [parse_value(value.strip()) for value in values.split(",") if value.strip()]
    return grid
