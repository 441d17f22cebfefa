"""`ecgr run`: one run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ecgr.cli import options
from ecgr.cli.console import complain, print_json, say, scores, summary
from ecgr.cli.interrupts import resumable, this_command
from ecgr.cli.options import chosen_engine, overrides
from ecgr.cli.progress import RoundProgress
from ecgr.config.experiment import load
from ecgr.config.user_files import task_or_name
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord
from ecgr.runs.tracking import TRACKERS, Tracker
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
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run, or start it.")] = False,
    log: Annotated[str | None, typer.Option("--log", help="Also write for a tracker: tensorboard.")] = None,
    as_json: options.Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runs.runner import run  # a wrong config is answered before anything heavy is imported

    work = chosen_engine(engine, ray_address, cpus_per_worker, gpus_per_worker)
    chosen = load(task_or_name(experiment), overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    with RoundProgress(chosen.run.name or "run", chosen.federation.rounds) as progress:
        watchers: list[Tracker] = [progress, *_trackers(log, directory)]

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
    kept = f"{directory} keeps {rounds} rounds" if rounds else "no round was finished"
    return f"{kept}; to go on: {this_command('--resume')}"


def _trackers(name: str | None, directory: Path) -> list[Tracker]:
    if name is None:
        return []
    if name not in TRACKERS:
        raise ConfigError(unknown("--log", name, TRACKERS, kind="tracker"))
    return [TRACKERS[name](directory)]
