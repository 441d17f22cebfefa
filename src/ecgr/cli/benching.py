"""`ecgr bench`: the benchmarks of a checkout, as ratios with thresholds."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.table import Table

from ecgr.cli.console import err, out, print_json, say
from ecgr.cli.options import Json
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.tables import unknown

CHECKOUT = Path(__file__).parents[3]


def bench_command(
    as_json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look: minutes.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also draw the figures and write docs/results/performance.md.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="Run one benchmark of the suite by name.")] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Run all of it so often and show each row's spread.")
    ] = 1,
) -> None:
    """Measure speed and memory against their thresholds; needs a checkout of the repository."""
    suite = _module("suite")
    names = only or list(suite.BENCHMARKS)
    wrong = [
        unknown("--only", name, suite.BENCHMARKS, kind="benchmark") for name in names if name not in suite.BENCHMARKS
    ]
    if wrong:
        raise ConfigError(*wrong)
    seconds: dict[str, float] = {}

    def ended(name: str, taken: float) -> None:
        seconds[name] = seconds.get(name, 0.0) + taken
        err.print(f"{name} took {taken:.0f} s", markup=False)

    def watch(row: Any) -> None:
        err.print(f"{row.name}: {number(row.value)}", markup=False)

    runs = [suite.run(names, quick, watch, ended) for _ in range(repeat)]
    rows = runs[-1]
    facts = {**suite.circumstances(), "seconds": round(sum(seconds.values()))}
    facts["by_benchmark"] = {name: round(taken) for name, taken in seconds.items()}
    if figures:
        _module("figures").write(rows, facts, quick)
    if as_json:
        print_json(
            {**facts, "rows": [row.as_dict() for row in rows], **({"spread": spread(runs)} if repeat > 1 else {})}
        )
    else:
        _print_table(rows, facts)
        if repeat > 1:
            _print_spread(runs)
    if any(row.limit is not None and not row.passed for row in rows):  # missed, or not measured
        raise typer.Exit(1)


def spread(runs: Sequence[Sequence[Any]]) -> dict[str, list[float]]:
    """Each row's values over the runs, sorted; what was not measured is left out."""
    found: dict[str, list[float]] = {}
    for rows in runs:
        for row in rows:
            if row.value is not None:
                found.setdefault(row.name, []).append(row.value)
    return {name: sorted(values) for name, values in found.items()}


def _print_spread(runs: Sequence[Sequence[Any]]) -> None:
    table = Table("what", "least", "median", "most", "runs", "threshold", box=None, pad_edge=False)
    limits = {row.name: f"{row.bound} {number(row.limit)}" for rows in runs for row in rows if row.limit is not None}
    for name, values in spread(runs).items():
        middle = (values[0], median(values), values[-1])
        table.add_row(name, *map(number, middle), str(len(values)), limits.get(name, ""))
    out.print(table)


def _module(name: str) -> Any:
    """A module of ``benchmarks``, which lies beside ``src`` in a checkout and is no part of the package."""
    if not (CHECKOUT / "benchmarks" / "suite.py").is_file():
        raise EnvironmentFault(
            "the benchmarks are in the repository, not in the installed package; run `make bench` in a checkout"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return importlib.import_module(f"benchmarks.{name}")


def _print_table(rows: list[Any], facts: dict[str, Any]) -> None:
    table = Table("what", "measured", "threshold", "", "note", box=None, pad_edge=False)
    for row in rows:
        threshold = "" if row.limit is None else f"{row.bound} {number(row.limit)}"
        verdict = {True: "ok", False: "MISSED", None: ""}[row.passed]
        table.add_row(row.name, number(row.value), threshold, verdict, row.note)
    out.print(table)
    judged = [row.passed for row in rows if row.passed is not None]
    say(
        f"{sum(judged)} of {len(judged)} thresholds met, {sum(row.value is None for row in rows)} not measured;"
        f" {facts['seconds']} s on {facts['cores']} cores, commit {facts['commit']}"
    )
    say(", ".join(f"{name} {taken} s" for name, taken in facts["by_benchmark"].items()))


def number(value: float | None) -> str:
    """Four significant digits.

    >>> number(35.0), number(0.99999), number(1.2e-7), number(None)
    ('35', '1.0000', '1.2e-07', '-')
    """
    if value is None:
        return "-"
    return f"{value:.4f}" if 0.9 <= value < 1.5 and value != 1 else f"{value:.4g}"
