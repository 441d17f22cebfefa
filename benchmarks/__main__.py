"""``python -m benchmarks``: speed and memory against their thresholds; ``make bench`` runs it."""

import json
from collections.abc import Sequence
from statistics import median
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import suite
from benchmarks.rows import Row, number
from ecgr.tables import unknown

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode=None)
out, err = Console(), Console(stderr=True)


@app.command()
def bench(
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, for a first look: minutes.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also draw the figures and write docs/results/performance.md.")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="Run one benchmark of the suite by name.")] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Run all of it so often and show each row's spread.")
    ] = 1,
) -> None:
    """Measure speed and memory against their thresholds."""
    names = only or list(suite.BENCHMARKS)
    wrong = [
        unknown("--only", name, suite.BENCHMARKS, kind="benchmark") for name in names if name not in suite.BENCHMARKS
    ]
    if wrong:
        raise typer.BadParameter(wrong[0])
    seconds: dict[str, float] = {}

    def ended(name: str, taken: float) -> None:
        seconds[name] = seconds.get(name, 0.0) + taken
        err.print(f"{name} took {taken:.0f} s", markup=False)

    def watch(row: Row) -> None:
        err.print(f"{row.name}: {number(row.value)}", markup=False)

    runs = [suite.run(names, quick, watch, ended) for _ in range(repeat)]
    rows = runs[-1]
    facts = {**suite.circumstances(), "seconds": round(sum(seconds.values()))}
    facts["by_benchmark"] = {name: round(taken) for name, taken in seconds.items()}
    if figures:
        from benchmarks import figures as pictures  # draws

        pictures.write(rows, facts, quick)
    if as_json:
        found = {**facts, "rows": [row.as_dict() for row in rows], **({"spread": spread(runs)} if repeat > 1 else {})}
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_table(rows, facts)
        if repeat > 1:
            _print_spread(runs)
    if any(row.limit is not None and not row.passed for row in rows):  # missed, or not measured
        raise typer.Exit(1)


def spread(runs: Sequence[Sequence[Row]]) -> dict[str, list[float]]:
    """Each row's values over the runs, sorted; what was not measured is left out."""
    found: dict[str, list[float]] = {}
    for rows in runs:
        for row in rows:
            if row.value is not None:
                found.setdefault(row.name, []).append(row.value)
    return {name: sorted(values) for name, values in found.items()}


def _print_spread(runs: Sequence[Sequence[Row]]) -> None:
    table = Table("what", "least", "median", "most", "runs", "threshold", box=None, pad_edge=False)
    limits = {row.name: f"{row.bound} {number(row.limit)}" for rows in runs for row in rows if row.limit is not None}
    for name, values in spread(runs).items():
        middle = (values[0], median(values), values[-1])
        table.add_row(name, *map(number, middle), str(len(values)), limits.get(name, ""))
    out.print(table)


def _print_table(rows: list[Row], facts: dict[str, Any]) -> None:
    table = Table("what", "measured", "threshold", "", "note", box=None, pad_edge=False)
    for row in rows:
        threshold = "" if row.limit is None else f"{row.bound} {number(row.limit)}"
        verdict = {True: "ok", False: "MISSED", None: ""}[row.passed]
        table.add_row(row.name, number(row.value), threshold, verdict, row.note)
    out.print(table)
    judged = [row.passed for row in rows if row.passed is not None]
    typer.echo(
        f"{sum(judged)} of {len(judged)} thresholds met, {sum(row.value is None for row in rows)} not measured;"
        f" {facts['seconds']} s on {facts['cores']} cores, commit {facts['commit']}"
    )
    typer.echo(", ".join(f"{name} {taken} s" for name, taken in facts["by_benchmark"].items()))


if __name__ == "__main__":
    app()
