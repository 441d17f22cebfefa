"""Tables of a report as plain values: a caption, columns, rows of cells that know how to sort."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, what it sorts by (the text if there is no value), and the verdict that gives it its colour."""

    text: str
    value: float | None = None
    style: str = ""


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
