"""`ecgr demo`: the main job on a small real problem that comes with the package."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ecgr.cli.comparing import show_answer
from ecgr.cli.console import complain, say, sweep_progress
from ecgr.cli.next_steps import open_page
from ecgr.cli.options import OpenPage, Workers

METHODS = ("fedavg", "fedavg+ecgr", "fedacg", "scaffold", "drift_correction")
TUNE = {"optimizer.lr": (0.05, 0.1, 0.2, 0.4)}
"""Of each method, the baseline too: at one common rate the comparison would only find whom the rate suits."""
NEXT = """\
Your own data, in Python:        ecgr.compare(ecgr.Task(model=…, train=(X, y), test=(Xt, yt), clients=ids), methods=[…])
from a file that makes a task:   ecgr compare my_task.py:task --methods fedavg,fedacg,scaffold
your own training loop:          with ecgr.Recorder(model, optimizer) as steps: …"""


def demo_command(
    out_dir: Annotated[Path, typer.Option("--out", help="Where runs and results go.")] = Path("runs/demo"),
    workers: Workers = "auto",
    seeds: Annotated[int, typer.Option("--seeds", help="How many.")] = 10,
    open_it: OpenPage = False,
) -> None:
    """Compare five tuned methods on 1,438 handwritten digits at ten unlike clients: what helps, and why."""
    from ecgr.compare import compare

    answer = compare(
        "demo",
        methods=METHODS,
        seeds=seeds,
        tune=TUNE,
        workers=workers,
        out=out_dir,
        progress=sweep_progress,
        warn=complain,
    )
    show_answer(answer, sys.argv[1:])
    say(NEXT)
    if open_it:
        open_page(out_dir / "report.html")
