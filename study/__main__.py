"""The study's commands, from a checkout.

::

    python -m study                        rebuild docs/results/paper.md, its figures and README's summary from the data
    python -m study gather RUNS [COMMIT]   make those data from the sweeps' run directories
    python -m study figures RUNS [OUT]     findings.json of any runs, and the figures drawn from it
    python -m study ceiling OUT [WORKERS]  run the experiment on the ceiling of regulation
    python -m study command PROBLEM        the command that runs a problem of the leaderboard
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ecgr.errors import EcgrError
from study.ceiling_runs import run_ceiling
from study.data import DATA
from study.document import rebuild
from study.figure_findings import write_findings
from study.gather import gather, head
from study.problems import problem

COMMANDS: Mapping[str, Callable[..., object]] = {
    "": rebuild,
    "gather": lambda runs, commit=None: gather(Path(runs), DATA, commit or head()),
    "ceiling": lambda out, workers="1": run_ceiling(Path(out), int(workers)),
    "command": lambda name: sys.stdout.write(f"{problem(name).command}\n"),
    "figures": lambda runs, out=None: write_findings(Path(runs), Path(out or f"{runs}/figures")),
}


def main(arguments: list[str]) -> str | None:
    """Run a command; what went wrong, if something did."""
    name, *rest = arguments or [""]
    if name not in COMMANDS or len(rest) not in ((0,) if name == "" else (1, 2)):
        return __doc__
    try:
        COMMANDS[name](*rest)
    except EcgrError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
