"""`ecgr compare`, `demo`, `report` and `figures`: make a comparison, and show what runs say."""

import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ecgr.cli import options
from ecgr.cli.console import complain, out, say, sweep_progress
from ecgr.cli.options import OpenPage, Workers, assigned, gathered, overrides, parse_value, work_of
from ecgr.cli.running import list_plans
from ecgr.config.experiment import changes_of
from ecgr.config.user_code import task_or_name
from ecgr.errors import ConfigError
from ecgr.runs.runner import worker_count

if TYPE_CHECKING:
    from ecgr.compare import Answer


Directories = Annotated[list[Path], Argument(metavar="DIR...", help="Run directories, or directories of them.")]
UntilLevel = Annotated[
    int | None, Option(metavar="MAX", help="Go on, up to MAX rounds, until every method levels off.")
]
Seeds = Annotated[str | None, Option(help="How many (10, the default, means 0 to 9), or which: 0,1,42 or 3-7.")]
DEMO_CHOSEN: dict[str, dict[str, Any]] = {
    "fedavg": {"optimizer.lr": 0.2, "server.lr": 1.0},
    "fedavgm(server_momentum=0.5)": {"optimizer.lr": 0.114, "algorithm.server_lr": 1.58},
    "drift_correction": {"optimizer.lr": 0.0572, "algorithm.server_lr": 1.16, "algorithm.damping": 0.42},
    "fedacg": {"optimizer.lr": 0.181, "algorithm.server_lr": 0.855, "algorithm.momentum": 0.337},
    "fedavg+ecgr": {"optimizer.lr": 0.114, "server.lr": 1.58, "regulator.beta": 0.743},
    "alone": {"optimizer.lr": 0.2},
    "pooled": {"optimizer.lr": 0.114},
}
"""The demo's methods, as tuned by ``ecgr compare demo --methods 'fedavg,fedavgm(server_momentum=0.5),drift_correction,
fedacg,fedavg+ecgr'``: tuning again would take minutes."""
TUNED_BY = "ecgr compare demo --methods 'fedavg,fedavgm(server_momentum=0.5),drift_correction,fedacg,fedavg+ecgr'"
AFTER_DEMO = f"""\
The settings were tuned beforehand: {TUNED_BY}
Your own data, in Python:        ecgr.compare(ecgr.Task(model=…, train=(X, y), test=(Xt, yt), clients=ids), methods=[…])
from a file that makes a task:   ecgr compare my_task.py:task --methods fedavg,fedacg,scaffold
your own training loop:          with ecgr.Recorder(model, optimizer) as steps: …"""


@gathered(work=work_of)
def compare_command(
    experiment: options.ExperimentName = "quickstart",
    methods: Annotated[
        str | None,
        Option(
            help="What is compared, e.g. 'fedavg,scaffold(damping=0.5)/lookahead'; by default"
            " fedavg,fedavgm(server_momentum=0.5),drift_correction,fedavg+ecgr."
        ),
    ] = None,
    baseline: Annotated[
        str | None, Option(help="What the others are compared with; the first method by default.")
    ] = None,
    seeds: Seeds = None,
    tune: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUES", help="Tune each method over these values instead of its own. Repeatable."),
    ] = None,
    no_tune: Annotated[bool, Option("--no-tune", help="Take all hyper-parameters as they are.")] = False,
    trials: Annotated[int, Option(help="How many choices each method is tuned with.")] = 12,
    rounds: Annotated[int | None, Option(help="The same as --set federation.rounds=N.")] = None,
    until_level: UntilLevel = None,
    references: Annotated[
        bool, Option("--references/--no-references", help="Also train clients alone, and one model on all data.")
    ] = True,
    settings: options.Set = None,
    out_dir: options.Out = None,
    *,
    work: options.Work,
    details: Annotated[bool, Option("--details", help="Print the statistics, too.")] = False,
    as_json: options.Json = False,
    open_it: options.OpenPage = False,
    track: options.Track = None,
    dry_run: options.DryRun = False,
) -> None:
    """Run methods paired by seed, then say with statistics which of them helped.

    Given a directory of finished runs, or the summaries.json of an earlier comparison, analyses those and runs nothing.
    """
    from ecgr.compare import compare
    from ecgr.compare.analyse import is_finished
    from ecgr.compare.plan import plan_comparison

    if tune and no_tune:
        raise ConfigError("--no-tune: --tune gives values to choose from; leave one of them out")
    asked: dict[str, Any] = {
        "methods": methods,
        "seeds": seeds,
        "settings": changes_of(overrides(settings), rounds=rounds),
        "tune": False if no_tune else parse_grid(tune),
        "trials": trials,
        "until_level": until_level,
        "references": references,
        "out": out_dir,
    }
    source = task_or_name(experiment)
    if dry_run:
        if is_finished(source):
            raise ConfigError(f"--dry-run: {source} is only analysed, not run; leave out --dry-run")
        planned = plan_comparison(source, baseline, **asked)
        from ecgr.compare.run import announced
        from ecgr.simulation.engines import engine_kind  # loads torch

        count = worker_count(work["workers"])
        engine_kind(work["engine"], count)
        say(planned.power)
        if planned.tuning:
            say(planned.budget)
        groups = {f"tuning {each.name}": each.tuning for each in planned.methods if each.tuning}
        list_plans({**groups, **{each.name: each.runs for each in planned.methods}}, count)
        if planned.staged:
            say(f"with the second stage of tuning: {announced(planned, count)}")
        return
    answer = compare(source, baseline, **asked, **work, track=track, progress=sweep_progress, warn=complain)
    if as_json:
        say(answer.to_json())
    else:
        show_answer(answer, () if is_finished(source) else sys.argv[1:], details)
    if open_it and answer.directory is not None:
        open_page(answer.directory / "report.html")


def show_answer(answer: "Answer", arguments: Sequence[str], details: bool = False) -> None:
    """The advice, the table and the picture, cautions with the ``arguments`` that resolve them, where the files are."""
    from ecgr.report.terminal import answer_parts

    for part in answer_parts(answer, arguments, details):
        out.print(part)
    directory = answer.directory
    assert directory is not None
    page = directory / "report.html"
    say(f"{page if page.exists() else directory / 'comparison.json'}")


def parse_grid(assignments: list[str] | None) -> dict[str, list[Any]]:
    """``KEY=VALUE,VALUE`` as values to choose from.

    >>> parse_grid(["optimizer.lr=0.01,0.03", "schedule.name=step,cosine"])
    {'optimizer.lr': [0.01, 0.03], 'schedule.name': ['step', 'cosine']}
    """
    grid: dict[str, list[Any]] = {}
    for key, values in assigned(assignments, "--tune", "KEY=VALUES", "optimizer.lr=0.01,0.03"):
        if key in grid:
            raise ConfigError(f"--tune: {key} is given twice; put its values in one list")
        grid[key] = [parse_value(value.strip()) for value in values.split(",") if value.strip()]
    return grid


def demo_command(
    out_dir: Annotated[Path, Option("--out", help="Where runs and results go.")] = Path("runs/demo"),
    workers: Workers = "auto",
    seeds: Seeds = None,
    until_level: UntilLevel = None,
    open_it: OpenPage = False,
) -> None:
    """Compare five methods on 1,438 handwritten digits at ten non-IID clients: what helps, and by how much.

    Their hyper-parameters were tuned beforehand.
    """
    from ecgr.compare import compare

    answer = compare(
        "demo",
        methods=[method for method in DEMO_CHOSEN if method not in ("alone", "pooled")],
        seeds=seeds,
        chosen=DEMO_CHOSEN,
        until_level=until_level,
        workers=workers,
        out=out_dir,
        progress=sweep_progress,
        warn=complain,
    )
    show_answer(answer, sys.argv[1:])
    say(AFTER_DEMO)
    if open_it:
        open_page(out_dir / "report.html")


def report_command(
    directories: Directories,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="FILE", dir_okay=False, help="The page; DIR/report.html by default."),
    ] = None,
    open_it: OpenPage = False,
) -> None:
    """Write one self-contained HTML page about finished and unfinished runs."""
    from ecgr.compare.analyse import analyse_runs
    from ecgr.report.page import write_report

    path = write_report(analyse_runs(directories), output or _beside(directories, "report.html"))
    say(str(path))
    if open_it:
        open_page(path)


def figures_command(
    directories: Directories,
    output: Annotated[
        Path | None, Option("--output", "-o", metavar="DIR", help="Where to write; DIR/figures by default.")
    ] = None,
    everything: Annotated[
        bool, Option("--all", help="Also a panel for each value of what varies, and which steps were kept.")
    ] = False,
) -> None:
    """Write the answer as figures (PDF and PNG), and its table as LaTeX and CSV."""
    from ecgr.compare.analyse import analyse_runs
    from ecgr.report.figures import write_figures

    directory = output or _beside(directories, "figures")
    written = write_figures(analyse_runs(directories), directory, everything=everything)
    say(f"{len(written)} files; {directory}")


def _beside(directories: Sequence[Path], name: str) -> Path:
    """In the one directory given, or here if there are several."""
    return directories[0] / name if len(directories) == 1 else Path(name)


def open_page(page: Path) -> None:
    """Show a page in the browser; say so if there is no page or no browser."""
    if not page.exists():
        complain("--open: no page was written")
    elif not webbrowser.open(page.resolve().as_uri()):
        complain(f"--open: no browser was found; the page is {page}")
