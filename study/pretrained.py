"""CIFAR-10 from a pretrained body and from scratch: one table of what each method reached and sent.

``python -m study pretrained DIR …`` reads finished comparisons (`ecgr compare examples/cifar10_pretrained.py:task` and
``:scratch``, or runs of `ecgr run` in a folder ``runs``), writes docs/results/data/pretrained.json, prints the table.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ecgr.runs.record import RunRecord


def table(places: Sequence[Path]) -> list[dict[str, Any]]:
    """A row for each task and method: the last accuracies, in percent, and the bytes sent in all, both ways."""
    found: dict[tuple[str, str], list[RunRecord]] = {}
    for path in sorted(path for place in places for path in (place / "runs").glob("*/run.json")):
        record = RunRecord.open(path.parent)
        if record.finished and not record.config["data"]["validation"]:  # not a trial of tuning
            found.setdefault((record.manifest["name"], record.manifest["method"]), []).append(record)
    return [
        {
            "task": task,
            "method": method,
            "rounds": len(records[0].rounds),
            "seeds": sorted(record.seed for record in records),
            "accuracy": round(fmean(ends := [100 * record.rounds[-1]["accuracy"] for record in records]), 2),
            "spread": round(stdev(ends), 2) if len(ends) > 1 else None,
            "bytes": round(fmean(sum(r["bytes_up"] + r["bytes_down"] for r in record.rounds) for record in records)),
            "commits": sorted({str(record.manifest["commit"]) for record in records}),
        }
        for (task, method), records in found.items()
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as a page shows them."""
    lines = ["| start | method | rounds | accuracy, % (sd over seeds) | seeds | MB sent |", "|---|---|---|---|---|---|"]
    for row in rows:
        start = row["task"].removeprefix("cifar10-")
        spread = "" if row["spread"] is None else f" ({row['spread']:.1f})"
        ends = f"{row['accuracy']:.1f}{spread} | {len(row['seeds'])} | {row['bytes'] / 1e6:,.1f} |"
        lines.append(f"| {start} | `{row['method']}` | {row['rounds']} | {ends}")
    return "\n".join(lines)


def measure(places: Sequence[Path], data: Path) -> str:
    """Write the rows to ``data/pretrained.json``; the table."""
    rows = table(places)
    if not rows:
        raise ValueError(f"{', '.join(map(str, places))}: no finished runs in the folder runs")
    told = {"command": "python -m study pretrained DIR …, after the commands of docs/guide/pretrained.md", "rows": rows}
    (data / "pretrained.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return markdown(rows)
