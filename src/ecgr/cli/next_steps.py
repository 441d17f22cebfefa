"""What to do next: after a comparison, and for somebody who typed `ecgr` and nothing else."""

import shlex
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecgr.cli.console import complain

if TYPE_CHECKING:
    from ecgr.analysis.pairs import Pair

MOST_SEEDS = 60
"""Nobody runs more for one verdict; a difference that needs them is small beside the spread."""

WELCOME = """\
ecgr: what helps against unlike clients in federated learning, by how much, and why.

See an answer, in under a minute:     ecgr demo
Ask it about a problem of yours:      ecgr compare my_task.py:task --methods fedavg,fedacg,drift_correction
What there is to choose from:         ecgr list methods

Every command: ecgr --help"""


def next_step(pairs: Sequence["Pair"], arguments: Sequence[str]) -> str:
    """The command that decides what is inconclusive, from the command's own arguments; empty where nothing is."""
    from ecgr.analysis.pairs import HEADLINE_PAIRS  # numpy and more, which the welcome does without
    from ecgr.analysis.power import least_seeds

    undecided = [pair for pair in pairs if pair.verdict in ("too few seeds", "inconclusive")]
    if not undecided:
        return ""
    few = max((least_seeds(pair.family) for pair in undecided if pair.verdict == "too few seeds"), default=0)
    if few:
        command = shlex.join(["ecgr", *with_option(arguments, "--seeds", str(max(few, HEADLINE_PAIRS)))])
        return f"Next: enough seeds to decide, and finished runs are kept: {command}"
    needed = {pair.method: pair.seeds_needed for pair in undecided if pair.seeds_needed is not None}
    within = {method: seeds for method, seeds in needed.items() if seeds <= MOST_SEEDS}
    if not within:
        rest = "difference that is left is" if len(undecided) == 1 else "differences that are left are"
        return f"Next: nothing to gain from more seeds; the {rest} small beside the spread between seeds."
    method = min(within, key=lambda name: within[name])
    seeds = max(within[method], *(len(pair.seeds) + 1 for pair in undecided))
    command = shlex.join(["ecgr", *with_option(arguments, "--seeds", str(seeds))])
    return f"Next: {seeds} seeds would likely decide {method}, and finished runs are kept: {command}"


def with_option(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """The arguments with an option's value changed, or added.

    >>> with_option(["compare", "--seeds", "3", "--json"], "--seeds", "10")
    ['compare', '--json', '--seeds', '10']
    >>> with_option(["compare", "--seeds=3"], "--seeds", "10")
    ['compare', '--seeds', '10']
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != option and not argument.startswith(f"{option}="):
            kept.append(argument)
        skip = argument == option and not skip
    return [*kept, option, value]


def open_page(page: Path) -> None:
    """Show a page in the browser; where there is none of either, say so."""
    if not page.exists():
        complain("--open: there is no page to open")
    elif not webbrowser.open(page.resolve().as_uri()):
        complain(f"--open: no browser was found; the page is {page}")
