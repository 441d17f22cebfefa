"""What a method costs, from what was measured inside its rounds: bytes, memory, and its share of the clients' time.

Clocks of different runs are never compared: they measure what else a machine was doing.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from ecgr.analysis.arms import Arm, Group
from ecgr.report.page.numbers import bytes_text, is_number
from ecgr.report.page.tables import Cell, Table, table

COLUMNS = ("method", "bytes up#", "bytes down#", "upload of a run#", "memory for steps#", "share of the clients' time#")


def cost_table(groups: Sequence[Group]) -> Table | None:
    """One row an arm; columns of which nothing is known are left out, and the table if that leaves none."""
    arms = [arm for group in groups for arm in group.arms]
    rows = [_row(arm) for arm in arms]
    known = [place for place in range(len(COLUMNS)) if any(row[place].text != "-" for row in rows)]
    if len(known) < 2:
        return None
    return table(
        "Medians over rounds and seeds; memory is the most of any client",
        [COLUMNS[place] for place in known],
        [[row[place] for place in known] for row in rows],
    )


def time_share(arm: Arm) -> float | None:
    """Recording and regulating as a share of what clients took, over the rows that say both."""
    rows = [
        row for row in _client_rows(arm) if is_number(row.get("regulation_seconds")) and is_number(row.get("seconds"))
    ]
    whole = sum(row["seconds"] for row in rows)
    return sum(row["regulation_seconds"] for row in rows) / whole if whole else None


def _row(arm: Arm) -> list[Cell]:
    up, down = (_numbers(_rounds(arm), key) for key in ("bytes_up", "bytes_down"))
    memory = _numbers(_client_rows(arm), "steps_memory")
    share = time_share(arm)
    values = (
        median(up) if up else None,
        median(down) if down else None,
        sum(up) / len(arm.counted) if up else None,
        max(memory) if memory else None,
    )
    return [
        Cell(arm.label),
        *(Cell(bytes_text(value), value) for value in values),
        Cell("-" if share is None else f"{100 * share:.1f} %", share),
    ]


def _rounds(arm: Arm) -> Iterable[dict[str, Any]]:
    return (row for run in arm.counted for row in run.rounds)


def _client_rows(arm: Arm) -> list[dict[str, Any]]:
    return [client for row in _rounds(arm) for client in row.get("clients", [])]


def _numbers(rows: Iterable[dict[str, Any]], key: str) -> list[float]:
    return [float(row[key]) for row in rows if is_number(row.get(key))]
