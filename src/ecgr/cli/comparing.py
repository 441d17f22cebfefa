"""`ecgr compare`: `ecgr.compare` on the command line."""

from typing import Annotated, Any

import typer

from ecgr.cli.console import complain, out
from ecgr.cli.estimating import list_plans
from ecgr.cli.options import Device, DryRun, EngineName, ExperimentName, Json, Out, Set, Treatment, Workers, overrides
from ecgr.cli.progress import sweep_progress
from ecgr.runs.workers import worker_count


def compare_command(
    experiment: ExperimentName = "quickstart",
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="How many (10, the default, means 0 to 9), or which: 0,1,42 or 3-7.")
    ] = None,
    regulators: Annotated[str | None, typer.Option("--regulators", help="Against none, e.g. ecgr,bherd.")] = None,
    algorithms: Annotated[str | None, typer.Option("--algorithms", help="E.g. fedavg,scaffold.")] = None,
    settings: Set = None,
    out_dir: Out = None,
    workers: Workers = "auto",
    engine: EngineName = None,
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
        list_plans(planned(experiment, **asked)[0], worker_count(workers))
        return
    answer = compare(
        experiment,
        **asked,
        treatment=treatment or (),
        workers=workers,
        engine=engine,
        device=device,
        progress=sweep_progress,
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


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
