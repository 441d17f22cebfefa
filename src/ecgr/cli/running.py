"""`ecgr run` and `ecgr sweep`: one run, a grid of runs, and with `--dry-run` how long they will take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ecgr.cli import options
from ecgr.cli.console import (
    complain,
    duration,
    err,
    resumable,
    round_progress,
    say,
    show_end,
    sweep_progress,
    this_command,
)
from ecgr.cli.options import gathered, overrides, work_of
from ecgr.config.experiment import load, read
from ecgr.config.user_code import task_or_name
from ecgr.errors import ConfigError, DataError
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import TRACKERS, worker_count
from ecgr.runs.sweep import Planned, grid, plan, run_all
from ecgr.tables import unknown


@gathered(work=work_of)
def run_command(
    experiment: options.ExperimentName = "quickstart",
    settings: options.Set = None,
    out_dir: options.Out = None,
    *,
    work: options.Work,
    resume: options.Resume = False,
    log: Annotated[str | None, typer.Option(help="Also write for a tracker: tensorboard.")] = None,
    as_json: options.Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runs.runner import run  # a wrong config is answered before anything heavy is imported

    chosen = load(task_or_name(experiment), overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    if log is not None and log not in TRACKERS:
        raise ConfigError(unknown("--log", log, TRACKERS, kind="tracker"))
    with round_progress(chosen.run.name or "run", chosen.federation.rounds) as progress:
        watchers = [progress, *([] if log is None else [TRACKERS[log](directory)])]

        def watch(row: Mapping[str, Any]) -> None:
            for watcher in watchers:
                watcher(row)

        with resumable(lambda: _kept_rounds(directory)):
            record = run(chosen, directory, resume=resume, watch=watch, warn=complain, **work)
    show_end(record, directory, as_json)


def _kept_rounds(directory: Path) -> str:
    rounds = len(RunRecord(directory).rounds)
    kept = f"{directory} has {rounds} rounds" if rounds else "no round was finished"
    return f"{kept}; to continue: {this_command('--resume')}"


@gathered(work=work_of)
def sweep_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file with a [grid], or a preset.")],
    settings: options.Set = None,
    out_dir: options.Out = None,
    *,
    work: options.Work,
    dry_run: options.DryRun = False,
) -> None:
    """Run a grid of experiments; finished runs are skipped, partial ones continue."""
    experiments = list(grid(file, overrides(settings)))
    directory = out_dir or Path("runs") / str(read(file)["run"]["name"])
    plans = plan(experiments, directory)
    if dry_run:
        list_plans(plans, worker_count(work["workers"]))
        return
    run_all(plans, progress=sweep_progress, warn=complain, **work)
    say(f"{len(plans)} runs finished; {directory}")


def list_plans(plans: Sequence[Planned], workers: int) -> None:
    """Print each run with its state and time, and the total."""
    left = [planned for planned in plans if not planned.finished]
    seconds = _seconds(left) if left else {}
    for planned in plans:
        state = "finished" if planned.finished else f"{planned.rounds_done} rounds done"
        time = f"  about {duration(seconds[planned.name])}" if planned.name in seconds else ""
        say(f"{planned.name}  {state}{time}")
    say(f"{len(plans)} runs, {len(left)} to do")
    if seconds:
        # The last run of a worker cannot be shared, so no sweep is shorter than its longest run.
        whole = max(sum(seconds.values()) / workers, *seconds.values())
        processes = "one process" if workers == 1 else f"{workers} processes"
        say(f"about {duration(whole)} with {processes}, as measured just now; longer if the machine is busy")


def _seconds(left: Sequence[Planned]) -> dict[str, float]:
    """The time of each run by name; empty, and said so, if the data to measure with are missing."""
    from ecgr.runs.calibration import calibrate  # loads torch

    with err.status("calibrating") as status:
        try:
            rounds = calibrate([each.experiment for each in left], lambda kind: status.update(f"calibrating: {kind}"))
        except DataError as error:
            complain(f"note: no estimate of the time: {error}")
            return {}
    to_do = {each.name: each.experiment.federation.rounds - each.rounds_done for each in left}
    return {each.name: rounds[each.experiment.key()] * to_do[each.name] for each in left}
