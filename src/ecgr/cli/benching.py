"""`ecgr bench`: the benchmarks of a checkout, as ratios with thresholds."""

import importlib
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ecgr.cli.console import err, out, print_json
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
) -> None:
    """Measure speed and memory against their thresholds; needs a checkout of the repository."""
    suite = _module("suite")
    names = only or list(suite.BENCHMARKS)
    wrong = [
        unknown("--only", name, suite.BENCHMARKS, kind="benchmark") for name in names if name not in suite.BENCHMARKS
    ]
    if wrong:
        raise ConfigError(*wrong)
    began = time.perf_counter()
    rows = suite.run(names, quick, watch=lambda row: err.print(f"{row.name}: {number(row.value)}", markup=False))
    facts = {**suite.circumstances(), "seconds": round(time.perf_counter() - began)}
    if figures:
        _module("figures").write(rows, facts, quick)
    if as_json:
        print_json({**facts, "rows": [row.as_dict() for row in rows]})
    else:
        _print_table(rows, facts)
    if any(row.limit is not None and not row.passed for row in rows):  # missed, or not measured
        raise typer.Exit(1)


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
    out.print(
        f"{sum(judged)} of {len(judged)} thresholds met, {sum(row.value is None for row in rows)} not measured;"
        f" {facts['seconds']} s on {facts['cores']} cores, commit {facts['commit']}",
        markup=False,
    )


def number(value: float | None) -> str:
    """Four significant digits.

    >>> number(35.0), number(0.99999), number(1.2e-7), number(None)
    ('35', '1.0000', '1.2e-07', '-')
    """
    if value is None:
        return "-"
    return f"{value:.4f}" if 0.9 <= value < 1.5 and value != 1 else f"{value:.4g}"
