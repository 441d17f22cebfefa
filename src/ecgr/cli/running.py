"""`ecgr run`: one run."""

from pathlib import Path
from typing import Annotated

import typer

from ecgr.cli.console import complain, out, print_json
from ecgr.cli.options import Device, ExperimentName, Json, Out, Set, Workers, overrides
from ecgr.cli.progress import RoundProgress
from ecgr.config import load


def run_command(
    experiment: ExperimentName = "quickstart",
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = 1,
    device: Device = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run, or start it.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runner import run  # a wrong config is answered before anything heavy is imported

    chosen = load(experiment, overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    with RoundProgress(chosen.run.name or "run", chosen.federation.rounds) as progress:
        record = run(
            chosen, directory, workers=workers, device=device, resume=resume, watch=progress, warn=complain
        )
    last = record.rounds[-1]
    if as_json:
        summary = {name: last[name] for name in ("round", "accuracy", "loss", "train_loss", "worst_client")}
        print_json({"directory": str(directory), "key": record.key, "seed": record.seed, **summary})
    else:
        out.print(
            f"accuracy {last['accuracy']:.4f}, loss {last['loss']:.4f} after {last['round']} rounds; {directory}",
            markup=False,
        )
