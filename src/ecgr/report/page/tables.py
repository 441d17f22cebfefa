"""Tables of a report as plain values: a caption, columns, rows of cells that know how to sort."""

from collections.abc import Sequence
from dataclasses import dataclass

from ecgr.analysis.arms import Arm, Group
from ecgr.report.page.drawings import numbers, quartiles, seconds


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, and what it sorts by; the text itself if there is no value."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; numbers stand to the right."""

    label: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Table:
    """What a template needs to write a table."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table from headings, of which those that end in ``#`` are over numbers.

    >>> table("", ["name", "seeds#"], []).columns[1]
    Column(label='seeds', numeric=True)
    """
    columns = (Column(heading.removesuffix("#"), heading.endswith("#")) for heading in headings)
    return Table(caption, tuple(columns), tuple(map(tuple, rows)))


def cost_table(groups: Sequence[Group], baseline: str = "none") -> Table:
    """Seconds, bytes and memory of a round, and what regulation adds to the baseline's seconds."""
    arms = [(arm, group) for group in groups for arm in group.arms]
    memory = {arm.label: _memory(arm) for arm, _ in arms}
    measured = any(value is not None for value in memory.values())
    headings = ["algorithm, regulator", "seconds#", "overhead#", "bytes up#", "bytes down#", "upload in all#"]
    rows = []
    for arm, group in arms:
        up, down = (_median(numbers(arm, key)) for key in ("bytes_up", "bytes_down"))
        whole = sum(numbers(arm, "bytes_up")) / max(1, len(arm.counted))
        time, overhead = _median(seconds(arm)), _overhead(arm, group, baseline)
        row = [
            Cell(arm.label),
            Cell("-" if time is None else f"{time:.3g}", time),
            Cell("-" if overhead is None else f"{100 * overhead:+z.1f} %", overhead),
            *(Cell(bytes_text(value), value) for value in (up, down, whole)),
        ]
        if measured:
            row.append(Cell(bytes_text(memory[arm.label]), memory[arm.label]))
        rows.append(row)
    return table(
        "Medians over rounds and seeds; overhead is against the baseline's median seconds; the last bytes are of a run",
        [*headings, *(["memory for steps#"] if measured else [])],
        rows,
    )


def points(value: float | None) -> str:
    """A difference of shares in percentage points.

    >>> points(0.0123)
    '+1.23'
    """
    return "-" if value is None else f"{100 * value:+z.2f}"


def bytes_text(value: float | None) -> str:
    """Bytes for people.

    >>> bytes_text(2_468_240), bytes_text(512)
    ('2.47 MB', '512 B')
    """
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def _overhead(arm: Arm, group: Group, baseline: str) -> float | None:
    own = _median(seconds(arm))
    base = next((_median(seconds(other)) for other in group.arms if other.regulator == baseline), None)
    return None if arm.regulator == baseline or own is None or not base else own / base - 1


def _median(values: Sequence[float]) -> float | None:
    return quartiles(values)["median"] if values else None


def _memory(arm: Arm) -> float | None:
    """The most memory that any round or client names, under whatever key that speaks of memory."""
    holders = (holder for run in arm.counted for row in run.rounds for holder in (row, *row.get("clients", [])))
    found = (value for holder in holders for key, value in holder.items() if "memory" in key)
    return max((value for value in found if isinstance(value, (int, float))), default=None)
