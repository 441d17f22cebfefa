"""`ecgr sweep`: a grid of runs."""

from pathlib import Path
from typing import Annotated

import typer

from ecgr.cli import options
from ecgr.cli.console import say
from ecgr.cli.estimating import list_plans
from ecgr.cli.options import chosen_engine, overrides
from ecgr.cli.progress import sweep_progress
from ecgr.config.experiment import read
from ecgr.runs.sweep import grid, plan, run_all
from ecgr.runs.workers import worker_count


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
    """Run a grid of experiments; finished runs are skipped, partial ones go on."""
    chosen = chosen_engine(engine, ray_address, cpus_per_worker, gpus_per_worker)
    experiments = list(grid(file, overrides(settings)))
    directory = out_dir or Path("runs") / str(read(file)["run"]["name"])
    plans = plan(experiments, directory)
    if dry_run:
        list_plans(plans, worker_count(workers))
        return
    run_all(plans, workers=workers, engine=chosen, device=device, progress=sweep_progress)
    say(f"{len(plans)} runs finished; {directory}")
