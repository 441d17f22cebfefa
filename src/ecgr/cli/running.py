"""`ecgr run` and `ecgr sweep`: one run, a grid of runs, and with `--dry-run` how long they will take."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ecgr.cli import options
from ecgr.cli.console import (
    RoundProgress,
    complain,
    duration,
    err,
    print_json,
    resumable,
    say,
    scores,
    summary,
    sweep_progress,
    this_command,
)
from ecgr.cli.options import chosen_engine, overrides
from ecgr.config.experiment import load, read
from ecgr.config.user_code import task_or_name
from ecgr.errors import ConfigError, DataError
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import TRACKERS, Watch, worker_count
from ecgr.runs.sweep import Planned, grid, plan, run_all
from ecgr.tables import unknown


def run_command(
    experiment: options.ExperimentName = "quickstart",
    settings: options.Set = None,
    out_dir: options.Out = None,
    workers: options.Workers = "auto",
    engine: options.EngineName = None,
    ray_address: options.RayAddress = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    device: options.Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run, or start it.")] = False,
    log: Annotated[str | None, typer.Option("--log", help="Also write for a tracker: tensorboard.")] = None,
    as_json: options.Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runs.runner import run  # a wrong config is answered before anything heavy is imported

    work = chosen_engine(engine, ray_address, cpus_per_worker, gpus_per_worker)
    chosen = load(task_or_name(experiment), overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    with RoundProgress(chosen.run.name or "run", chosen.federation.rounds) as progress:
        watchers: list[Watch] = [progress, *_trackers(log, directory)]

        def watch(row: Mapping[str, Any]) -> None:
            for watcher in watchers:
                watcher(row)

        with resumable(lambda: _kept_rounds(directory)):
            record = run(
                chosen,
                directory,
                workers=workers,
                engine=work,
                device=device,
                resume=resume,
                watch=watch,
                warn=complain,
            )
    last = record.rounds[-1]
    if as_json:
        print_json({"directory": str(directory), "key": record.key, "seed": record.seed, **summary(last)})
    else:
        say(f"{scores(last)} after {last['round']} rounds; {directory}")


def _kept_rounds(directory: Path) -> str:
    rounds = len(RunRecord(directory).rounds)
    kept = f"{directory} has {rounds} rounds" if rounds else "no round was finished"
    return f"{kept}; to continue: {this_command('--resume')}"


def _trackers(name: str | None, directory: Path) -> list[Watch]:
    if name is None:
        return []
    if name not in TRACKERS:
        raise ConfigError(unknown("--log", name, TRACKERS, kind="tracker"))
    return [TRACKERS[name](directory)]


def sweep_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file with a [grid], or a preset.")],
    settings: options.Set = None,
    out_dir: options.Out = None,
    workers: options.Workers = "auto",
    engine: options.EngineName = None,
    ray_address: options.RayAddress = None,
    cpus_per_worker: options.CpusPerWorker = None,
    gpus_per_worker: options.GpusPerWorker = None,
    device: options.Device = "cpu",
    dry_run: options.DryRun = False,
) -> None:
    """Run a grid of experiments; finished runs are skipped, partial ones continue."""
    chosen = chosen_engine(engine, ray_address, cpus_per_worker, gpus_per_worker)
    experiments = list(grid(file, overrides(settings)))
    directory = out_dir or Path("runs") / str(read(file)["run"]["name"])
    plans = plan(experiments, directory)
    if dry_run:
        list_plans(plans, worker_count(workers))
        return
    run_all(plans, workers=workers, engine=chosen, device=device, progress=sweep_progress, warn=complain)
    say(f"{len(plans)} runs finished; {directory}")


def list_plans(plans: Sequence[Planned], workers: int) -> None:
    """Print each run with its state and time, and the total."""
    left = [planned for planned in plans if not planned.finished]
    seconds = _seconds(left)
    for planned in plans:
        state = "finished" if planned.finished else f"{planned.rounds_done} rounds done"
        time = f"  about {duration(seconds[planned.name])}" if planned.name in seconds else ""
        say(f"{planned.name}  {state}{time}")
    say(f"{len(plans)} runs, {len(left)} to do")
    if seconds:
        # The last run of a worker cannot be shared, so no sweep is shorter than its longest run.
        whole = max(sum(seconds.values()) / workers, *seconds.values())
        processes = "one process" if workers == 1 else f"{workers} processes"
        estimate = f"about {duration(whole)} with {processes}, as measured just now"
        say(f"{estimate}; longer if the machine is busy")


def _seconds(left: Sequence[Planned]) -> dict[str, float]:
    """The time of each run by name; empty, and said so, if the data to measure with are missing."""
    if not left:
        return {}
    from ecgr.runs.calibration import calibrate  # loads torch

    with err.status("calibrating") as status:
        try:
            rounds = calibrate(
                [planned.experiment for planned in left], lambda kind: status.update(f"calibrating: {kind}")
            )
        except DataError as error:
            complain(f"note: no estimate of the time: {error}")
            return {}
    return {planned.name: _left(planned, rounds) for planned in left}


def _left(planned: Planned, rounds: Mapping[str, float]) -> float:
    experiment = planned.experiment
    return rounds[experiment.key()] * (experiment.federation.rounds - planned.rounds_done)
