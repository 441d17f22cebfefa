"""A CSV file as rows of text under named columns, each with its line: what every later complaint points at."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from ecgr.errors import DataError

MOST_BYTES = 256 << 20
LARGEST = 1.8e19
"""About the square root of float32's largest number: scaling and squared errors stay finite."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of text that knows where each of its cells stands."""

    name: str
    texts: tuple[str, ...]
    places: tuple[tuple[Path, int], ...]

    def where(self, index: int) -> str:
        """The words for where a cell stands."""
        path, line = self.places[index]
        return f"{path}: line {line}, column {self.name!r}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, cells without the spaces around them; ``places`` has the file and line of each row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    places: tuple[tuple[Path, int], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Column:
        """The column of that name."""
        index = self.columns.index(name)
        return Column(name, tuple(row[index] for row in self.rows), self.places)

    def take(self, indices: Iterable[int]) -> "Table":
        """The rows at ``indices``."""
        chosen = list(indices)
        return Table(self.columns, tuple(self.rows[i] for i in chosen), tuple(self.places[i] for i in chosen))


def join(tables: Sequence[Table]) -> Table:
    """The rows of all tables, in order; they must have the same columns, in whatever order."""
    first = tables[0]
    rows: list[tuple[str, ...]] = []
    for table in tables:
        if set(table.columns) != set(first.columns):
            odd = sorted(set(table.columns) ^ set(first.columns))[0]
            raise DataError(
                f"{table.places[0][0]}: has other columns than {first.places[0][0]} ({odd!r} is in one of them)"
            )
        order = [table.columns.index(name) for name in first.columns]
        rows += (tuple(row[i] for i in order) for row in table.rows)
    return Table(first.columns, tuple(rows), tuple(place for table in tables for place in table.places))


def parse_table(path: Path, content: bytes, separator: str = ",", columns: Sequence[str] = ()) -> Table:
    """A file whose first line names the columns; or, given ``columns``, one that may do without that line."""
    text = decode(path, content)
    rows: list[tuple[str, ...]] = []
    lines: list[int] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        for cells in reader:
            row = tuple(cell.strip() for cell in cells)
            if any(row):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV ({error})") from None
    names = tuple(columns) or (rows[0] if rows else ())
    if rows and rows[0] == names:
        del rows[0], lines[0]
    if not rows:
        raise DataError(f"{path}: has no row of data")
    _check_names(path, names)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(names):
            raise DataError(
                f"{path}: line {line} has {len(row)} values for {len(names)} columns; a value that holds a"
                f" {separator!r} stands in quotes, and data.separator says what stands between values"
            )
    return Table(names, tuple(rows), tuple((path, line) for line in lines))


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file of at most ``most`` bytes."""
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(content) > most:
        raise DataError(f"{path}: has more than {most:,} bytes; split it, or use arrays")
    return content


def decode(path: Path, content: bytes) -> str:
    """UTF-8 text, with or without a byte-order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text at byte {error.start:,}; save it as UTF-8") from None


def as_number(text: str) -> float | None:
    """The finite number that ``text`` writes, if it writes one.

    >>> as_number("-9.0"), as_number(".7"), as_number("1_000"), as_number("nan"), as_number("?")
    (-9.0, 0.7, None, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and "_" not in text else None


def usable_number(where: str, text: str, advice: str) -> float:
    """The number in a cell; refused where it is none, or so large that its square is infinite in float32."""
    number = as_number(text)
    if number is None:
        raise DataError(f"{where}: {text[:40]!r} is not a number; {advice}")
    if abs(number) > LARGEST:
        raise DataError(
            f"{where}: {text[:40]} is too large, numbers go up to {LARGEST:.1e} (whose square float32 can hold);"
            " correct it, or name it in data.missing_values"
        )
    return number


def canonical(text: str) -> str:
    """One spelling for each value: numbers that are equal are written alike.

    >>> canonical("1.0"), canonical("1"), canonical("0.50"), canonical("male")
    ('1', '1', '0.5', 'male')
    """
    number = as_number(text)
    if number is None:
        return text
    return str(int(number)) if number == int(number) else str(number)


def in_order(values: Iterable[str]) -> list[str]:
    """Distinct canonical values: numbers by size, then the others by name.

    >>> in_order(["10", "9", "b", "a", "9"])
    ['9', '10', 'a', 'b']
    """

    def rank(value: str) -> tuple[bool, float, str]:
        number = as_number(value)
        return number is None, number or 0.0, value

    return sorted(set(values), key=rank)


def _check_names(path: Path, names: Sequence[str]) -> None:
    for index, name in enumerate(names):
        if not name:
            raise DataError(f"{path}: line 1: column {index + 1} has no name")
        if name in names[:index]:
            raise DataError(f"{path}: line 1: two columns are named {name!r}")
