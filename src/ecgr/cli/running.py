"""`ecgr run`: one run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ecgr.cli.console import complain, out, print_json, scores
from ecgr.cli.options import Device, ExperimentName, Json, Out, Set, Workers, overrides
from ecgr.cli.progress import RoundProgress
from ecgr.config import load
from ecgr.errors import ConfigError
from ecgr.schema import unknown
from ecgr.tracking import TRACKERS, Tracker


def run_command(
    experiment: ExperimentName = "quickstart",
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = 1,
    device: Device = "cpu",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run, or start it.")] = False,
    log: Annotated[str | None, typer.Option("--log", help="Also write for a tracker: tensorboard.")] = None,
    as_json: Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runner import run  # a wrong config is answered before anything heavy is imported

    chosen = load(experiment, overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    with RoundProgress(chosen.run.name or "run", chosen.federation.rounds) as progress:
        watchers: list[Tracker] = [progress, *_trackers(log, directory)]

        def watch(row: Mapping[str, Any]) -> None:
            for watcher in watchers:
                watcher(row)

        record = run(chosen, directory, workers=workers, device=device, resume=resume, watch=watch, warn=complain)
    last = record.rounds[-1]
    if as_json:
        summary = {name: last[name] for name in ("round", "accuracy", "loss", "train_loss", "worst_client")}
        print_json({"directory": str(directory), "key": record.key, "seed": record.seed, **summary})
    else:
        out.print(
            f"{scores(last)} after {last['round']} rounds; {directory}",
            markup=False,
        )


def _trackers(name: str | None, directory: Path) -> list[Tracker]:
    if name is None:
        return []
    if name not in TRACKERS:
        raise ConfigError(unknown("--log", name, TRACKERS, kind="tracker"))
    return [TRACKERS[name](directory)]
