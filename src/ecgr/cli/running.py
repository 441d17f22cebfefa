"""`ecgr run` and `ecgr sweep`: one run, a grid of runs, and with `--dry-run` what they will take; `ecgr clean`."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.filesize import decimal
from typer import Argument, Option

from ecgr.cli import options
from ecgr.cli.console import complain, err, resumable, round_progress, say, show_end, sweep_progress, this_command
from ecgr.cli.options import gathered, overrides, work_of
from ecgr.config.experiment import load, read
from ecgr.config.user_code import task_or_name
from ecgr.errors import DataError
from ecgr.runs.clean import spare
from ecgr.runs.identity import method_of
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import worker_count
from ecgr.runs.sweep import PlannedRun, duration, grid, plan_runs, run_all
from ecgr.runs.trackers import check_tracker, entry_of, tracked
from ecgr.runs.trackers import track as write_entries

if TYPE_CHECKING:
    from ecgr.runs.calibration import RunCost


@gathered(work=work_of)
def run_command(
    experiment: options.ExperimentName = "quickstart",
    settings: options.Set = None,
    out_dir: options.Out = None,
    *,
    work: options.Work,
    resume: options.Resume = False,
    track: options.Track = None,
    log: Annotated[str | None, Option(help="The old name of --track.", hidden=True)] = None,
    as_json: options.Json = False,
) -> None:
    """Run one experiment."""
    from ecgr.runs.runner import run  # a wrong config is answered before anything heavy is imported

    chosen = load(task_or_name(experiment), overrides(settings))
    directory = out_dir or Path("runs") / (chosen.run.name or "run")
    if log is not None:
        complain("--log: is called --track now")
    tracker = track or log
    check_tracker(tracker)

    def kept() -> str:
        rounds = len(RunRecord(directory).rounds)
        what = f"{directory} has {rounds} rounds" if rounds else "no round was finished"
        return f"{what}; to continue: {this_command('--resume')}"

    with (
        round_progress(chosen.run.name or "run", chosen.federation.rounds) as show,
        tracked(tracker, directory) if tracker else nullcontext() as log_round,
        resumable(kept),
    ):

        def watch(row: Mapping[str, Any]) -> None:
            show(row)
            if log_round is not None:
                log_round(row)

        record = run(chosen, directory, resume=resume, watch=watch, warn=complain, **work)
    show_end(record, directory, as_json)


@gathered(work=work_of)
def sweep_command(
    file: Annotated[str, Argument(metavar="FILE", help="A TOML file with a [grid], or a preset.")],
    settings: options.Set = None,
    out_dir: options.Out = None,
    *,
    work: options.Work,
    track: options.Track = None,
    dry_run: options.DryRun = False,
) -> None:
    """Run a grid of experiments; finished runs are skipped, partial ones continue."""
    experiments = list(grid(file, overrides(settings)))
    directory = out_dir or Path("runs") / str(read(file)["run"]["name"])
    plans = plan_runs(experiments, directory)
    if dry_run:
        methods: dict[str, list[PlannedRun]] = {}
        for each in plans:
            methods.setdefault(method_of(each.experiment).name, []).append(each)
        list_plans(methods, worker_count(work["workers"]))
        return
    check_tracker(track)
    run_all(plans, progress=sweep_progress, warn=complain, **work)
    if track is not None:
        write_entries(track, [(entry_of(each.record, directory), each.record.rounds) for each in plans])
    say(f"{len(plans)} runs finished; {directory}")


def list_plans(groups: Mapping[str, Sequence[PlannedRun]], workers: int) -> None:
    """Print each group of runs with its state and time, the total, and what it takes on disk."""

    def runs(own: Sequence[PlannedRun]) -> str:
        return f"{len(own)} run{'' if len(own) == 1 else 's'}"

    plans = [planned for own in groups.values() for planned in own]
    left = [planned for planned in plans if not planned.finished]
    costs = _costs(left) if left else {}
    seconds = {each.directory: costs[each.experiment.key()].seconds * each.rounds_left for each in left if costs}
    for name, own in groups.items():
        done, rounds = sum(each.finished for each in own), sum(each.rounds_done for each in own if not each.finished)
        states = [f"{done} finished" if done else "", f"{rounds} rounds of others done" if rounds else ""]
        time = sum(seconds.get(each.directory, 0.0) for each in own)
        states += [f"about {duration(time)} of one process" if time else ""]
        say(", ".join([f"{name}: {runs(own)}", *filter(None, states)]))
    say(f"{runs(plans)}, {len(left)} to do")
    if seconds:
        # The last run of a worker cannot be shared, so no sweep is shorter than its longest run.
        whole = max(sum(seconds.values()) / workers, *seconds.values())
        processes = "one process" if workers == 1 else f"{workers} processes"
        say(f"about {duration(whole)} with {processes}, as measured just now; longer if the machine is busy")
        of_runs = [(costs[each.experiment.key()], each.experiment.federation.rounds) for each in left]
        stays = sum(cost.model + cost.record * rounds for cost, rounds in of_runs)
        most = stays + sum(cost.checkpoints for cost, _ in of_runs)
        say(f"about {decimal(stays)} on disk, and at most {decimal(most)} until they are all finished")


def _costs(left: Sequence[PlannedRun]) -> "dict[str, RunCost]":
    """What each kind of run takes; empty, and said so, if the data to measure with are missing."""
    from ecgr.runs.calibration import calibrate  # loads torch

    with err.status("calibrating") as status:
        try:
            return calibrate([each.experiment for each in left], lambda kind: status.update(f"calibrating: {kind}"))
        except DataError as error:
            complain(f"note: no estimate of the time: {error}")
            return {}


def clean_command(
    directory: Annotated[Path, Argument(metavar="RUNS", help="A run, a comparison, or a folder of them.")],
    yes: Annotated[bool, Option("--yes", help="Remove it; without, it is only shown.")] = False,
) -> None:
    """Show what can be made again, and remove it: no record, model or answer is touched.

    That is checkpoints of finished runs (which then cannot get more rounds), the runs that answered comparisons were
    tuned with, and decoded pictures.
    """
    found = spare(directory)
    by_kind: dict[str, list[int]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each.bytes)
        if yes:
            each.remove()
    for kind, sizes in by_kind.items():
        say(f"{kind}: {len(sizes)}, {decimal(sum(sizes))}")
    whole = sum(map(sum, by_kind.values()))
    freed = f"{whole:,} bytes {'freed' if yes else 'can be freed; to remove them: ' + this_command('--yes')}"
    say(freed if found else "nothing can be made again; nothing to remove")
