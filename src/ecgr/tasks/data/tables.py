"""Tables in CSV files: columns for features, target and client, or a folder with one file a client.

A cell is text with its line, so that every complaint can point at it. Everything that is learnt from numbers (means,
medians, deviations) is learnt from training rows alone.
"""

import csv
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.component import component
from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.dataset import Dataset, Share, SplitSeed, holdout
from ecgr.tasks.data.files import find_folder, own_path
from ecgr.tasks.data.official import OFFICIAL, KnownSet, Report, with_report
from ecgr.tasks.data.targets import Kind, Targets, binary_targets
from ecgr.tasks.samples import Samples

Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Mask = NDArray[np.bool_]

Missing = Literal["refuse", "drop", "mean", "median"]
Scope = Literal["all", "client"]
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


Gap = Callable[[str], bool]
"""Whether a cell stands for a missing value."""


@dataclass(frozen=True, slots=True)
class Category:
    """A column of categories: one feature for each, in this order; found in the data where none are given."""

    column: str
    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, columns: Sequence[str]) -> "Category":
        """``"sex"``, or ``"sex=f,m"`` with all the categories there can be.

        >>> Category.of("pain=1,2.0,3", ["age", "pain"])
        Category(column='pain', values=('1', '2', '3'))
        """
        if text in columns:
            return cls(text)
        name, _, values = text.rpartition("=")
        if name not in columns:
            raise ConfigError(unknown_column("data.categorical", name or text, columns))
        return cls(name, tuple(canonical(value.strip()) for value in values.split(",")))


def gap(missing_values: Sequence[str]) -> Gap:
    """Cells that are empty or one of ``missing_values``, numbers by value: "-9" is also "-9.0"."""
    known = {"", *(canonical(value.strip()) for value in missing_values)}
    return lambda text: text in known or canonical(text) in known


def rows_with_gaps(columns: Sequence[Column], is_gap: Gap) -> Iterator[tuple[int, str]]:
    """Each row with a missing value, and where its first one stands."""
    for index, row in enumerate(zip(*(column.texts for column in columns), strict=True)):
        found = next((column for column, text in zip(columns, row, strict=True) if is_gap(text)), None)
        if found is not None:
            yield index, found.where(index)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Features as a matrix: NaN where a number is missing, zeros and ones for categories, all zeros for a missing one.

    Attributes:
        values: (N, features).
        numbers: (features,), whether a column is of numbers.
        gaps: how many values are missing.
    """

    values: Numbers
    numbers: NDArray[np.bool_]
    gaps: int


def encode(table: Table, features: Sequence[str], categories: Mapping[str, Category], is_gap: Gap) -> Encoded:
    """The features of a table, in their order, each category a column of its own in the order of its values."""
    blocks, numbers, gaps = [], [], 0
    for name in features:
        column = table.column(name)
        gaps += sum(is_gap(text) for text in column.texts)
        block = _categories(column, categories[name], is_gap) if name in categories else _numbers(column, is_gap)
        blocks.append(block)
        numbers += [name not in categories] * block.shape[1]
    return Encoded(np.concatenate(blocks, axis=1), np.array(numbers), gaps)


def _numbers(column: Column, is_gap: Gap) -> Numbers:
    found = np.full((len(column.texts), 1), np.nan)
    for index, text in enumerate(column.texts):
        if is_gap(text):
            continue
        found[index] = usable_number(
            column.where(index), text, "name the column in data.categorical, or the value in data.missing_values"
        )
    return found


def _categories(column: Column, category: Category, is_gap: Gap) -> Numbers:
    names = ["" if is_gap(text) else canonical(text) for text in column.texts]
    values = list(category.values) or in_order(name for name in names if name)
    index = {value: place for place, value in enumerate(values)}
    found = np.zeros((len(names), len(values)))
    for row, name in enumerate(names):
        if not name:
            continue
        if name not in index:
            raise DataError(f"{column.where(row)}: {name[:40]!r} is none of {', '.join(values)}; see data.categorical")
        found[row, index[name]] = 1.0
    return found


def unknown_column(key: str, name: str, columns: Sequence[str]) -> str:
    """The line for a column that is not there."""
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    return f"{key}: there is no column {name!r}; there are: {shown}"


FILLS: Mapping[str, Callable[..., Numbers]] = {"mean": np.nanmean, "median": np.nanmedian}


def filled(values: Numbers, train: Mask, fill: str) -> Numbers:
    """``values`` with each NaN replaced by the mean or median of its column's training rows; 0 where there is none.

    >>> filled(np.array([[1.0], [3.0], [np.nan], [9.0]]), np.array([True, True, True, False]), "mean").tolist()
    [[1.0], [3.0], [2.0], [9.0]]
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a single value gives NaN, and becomes 0
        known = np.nan_to_num(FILLS[fill](values[train], axis=0))
    result: Numbers = np.where(np.isnan(values), known, values)
    return result


def standardised(values: Numbers, train: Mask) -> Numbers:
    """Columns with mean 0 and deviation 1 over the training rows; a column that never changes there is shifted only.

    >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0], [4.0, 5.0]]), np.array([True, True, False])).tolist()
    [[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    """
    mean, deviation = values[train].mean(axis=0), values[train].std(axis=0)
    tiny = deviation <= 1e-12 * np.abs(mean)
    result: Numbers = np.where(tiny, values - mean, (values - mean) / np.where(tiny, 1.0, deviation))
    return result


def by_scope(clients: Names, scope: Scope, prepare: Callable[[Numbers, Mask], Numbers]) -> Callable[..., Numbers]:
    """``prepare`` for all rows at once, or for each client's rows by themselves."""

    def prepared(values: Numbers, train: Mask) -> Numbers:
        if scope == "all":
            return prepare(values, train)
        result = np.empty_like(values)
        for client in np.unique(clients):
            rows = clients == client
            if not train[rows].any():
                raise DataError(
                    f'client {str(client)!r} has no training row to learn a scale from; set data.scope = "all"'
                )
            result[rows] = prepare(values[rows], train[rows])
        return result

    return prepared


MOST_GUESSED = 20
"""Whole numbers with at most so many different values are taken for classes where nobody says what they are."""


def column_targets(column: Column, kind: Kind, above: float | None = None) -> Targets:
    """The targets that a column of text writes.

    Left to itself (``kind = "auto"``) a column of two values is yes or no, one of text or of at most twenty different
    whole numbers is of classes, any other is of numbers. ``above`` makes numbers a yes where they are above it.

    >>> column = Column("degree", ("0", "3", "0"), ((Path("a.csv"), 2),) * 3)
    >>> column_targets(column, "auto").values.tolist(), column_targets(column, "auto", above=5).values.tolist()
    ([0, 1, 0], [0, 0, 0])
    """
    if above is not None:
        numbers = column_numbers(column, "data.above needs numbers")
        return binary_targets(numbers > above, (f"at most {above:g}", f"above {above:g}"))
    names = [canonical(text) for text in column.texts]
    distinct = in_order(names)
    chosen = kind if kind != "auto" else _guess(distinct)
    return TARGETS[chosen](column, names, distinct)


def column_numbers(column: Column, advice: str) -> NDArray[np.float64]:
    """A column of numbers; the first cell that is none is refused."""
    found = np.empty(len(column.texts))
    for index, text in enumerate(column.texts):
        found[index] = usable_number(column.where(index), text, advice)
    return found


def _guess(distinct: Sequence[str]) -> str:
    if len(distinct) == 2:
        return "binary"
    numbers = [as_number(name) for name in distinct]
    few = len(distinct) <= MOST_GUESSED and all(number is None or number.is_integer() for number in numbers)
    return "classes" if few or None in numbers else "numbers"


def _binary_column(column: Column, names: Sequence[str], distinct: Sequence[str]) -> Targets:
    values = ["0", "1"] if set(distinct) <= {"0", "1"} else list(distinct)
    if len(values) != 2:
        index = next((i for i, name in enumerate(names) if name not in values[:2]), 0)
        raise DataError(
            f"{column.where(index)}: {column.texts[index][:40]!r} makes {len(distinct)} different values;"
            " a binary target has two, or data.above says from which number on it is a yes"
        )
    return binary_targets(np.array(names) == values[1], tuple(values))


def _class_column(column: Column, names: Sequence[str], distinct: Sequence[str]) -> Targets:
    if len(distinct) < 2:
        raise DataError(f"{column.where(0)}: every row has {distinct[0][:40]!r}; there must be at least two classes")
    index = {name: label for label, name in enumerate(distinct)}
    values = np.array([index[name] for name in names], dtype=np.int64)
    return Targets("classes", values, {"classes": len(distinct)}, tuple(distinct))


def _number_column(column: Column, _names: Sequence[str], _distinct: Sequence[str]) -> Targets:
    return Targets("numbers", column_numbers(column, "or set data.kind").astype(np.float32), {"outputs": 1})


TARGETS: Mapping[str, Callable[[Column, Sequence[str], Sequence[str]], Targets]] = {
    "binary": _binary_column,
    "classes": _class_column,
    "numbers": _number_column,
}


TextList = Annotated[tuple[str, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of all files, and for each the name that its file gives it: a client, or "train" or "test"."""

    table: Table
    file_names: NDArray[np.str_]
    named: str | None
    files: Mapping[str, str]

    def take(self, indices: NDArray[np.int64]) -> "Rows":
        """The rows at ``indices``."""
        return Rows(self.table.take(indices.tolist()), self.file_names[indices], self.named, self.files)


@component
class Csv:
    """Your own table: a CSV file, a folder with one file a client, or one with train.csv and test.csv."""

    root: str | None = None
    files: str = "*.csv"
    separator: str = ","
    columns: TextList = ()
    target: str | None = None
    kind: Kind = "auto"
    above: float | None = None
    client: str | None = None
    features: TextList = ()
    categorical: TextList = ()
    missing: Missing = "refuse"
    missing_values: TextList = ()
    standardise: bool = True
    scope: Scope = "all"
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        return own_path("csv", self.root, "a CSV file, or a folder with one a client")

    def load(self) -> Dataset:
        rows = self._rows()
        is_gap = gap(self.missing_values)
        target, client, features, categories = self._columns(rows.table.columns)
        rows, dropped = self._without_gaps(rows, [*features, target, *([client] if client else [])], is_gap)
        targets = column_targets(rows.table.column(target), self.kind, self.above)
        clients = np.array(rows.table.column(client).texts) if client else rows.file_names
        encoded = encode(rows.table, features, categories, is_gap)
        test = self._test_rows(rows, clients, targets)
        inputs = by_scope(clients, self.scope, self._prepare)(encoded.values, ~test)
        inputs = np.where(encoded.numbers, inputs, encoded.values).astype(np.float32)
        known = client is not None or rows.named == "client"

        def half(mask: Mask) -> Samples:
            return Samples(inputs[mask], targets.values[mask], clients[mask] if known else None)

        return Dataset(
            train=half(~test),
            test=half(test),
            shape={"features": inputs.shape[1], **targets.shape},
            loss=targets.loss,
            metrics=targets.metrics,
            classes=targets.classes,
            files=rows.files,
            notes=(*dropped, *self._note(encoded.gaps)),
        )

    def assess(self) -> Report:
        if self.target is None:
            rows = self._rows()
            return Report("csv", "whole", ("whole: every row could be read",), {"rows": len(rows.table)})
        dataset = self.load()
        return Report("csv", "whole", ("whole: every row could be read", *dataset.notes), dataset.counts)

    def _rows(self) -> Rows:
        if len(self.separator) != 1:
            raise ConfigError(f"data.separator: {self.separator!r} does not fit; give one character")
        if self.files.count("*") != 1 or "/" in self.files:
            raise ConfigError(f"data.files: {self.files!r} does not fit; give a name with one * for the client")
        path = self.folder()
        before, _, after = self.files.partition("*")
        paths = sorted(path.glob(self.files)) if path.is_dir() else [path]
        if not paths:
            raise DataError(f"csv: no {self.files} in {path}; data.files says how the files are called")
        names = [file.name[len(before) : len(file.name) - len(after)] for file in paths]
        named = None if not path.is_dir() else "part" if names == ["test", "train"] else "client"
        contents = {file: read_bytes(file) for file in paths}
        tables = [parse_table(file, content, self.separator, self.columns) for file, content in contents.items()]
        return Rows(
            join(tables),
            np.repeat(names if named else "", [len(table) for table in tables]),
            named,
            {file.name: sha256(content).hexdigest() for file, content in contents.items()},
        )

    def _columns(self, columns: tuple[str, ...]) -> tuple[str, str | None, list[str], dict[str, Category]]:
        """Target, client, features, and those of them that are categories."""
        if self.target is None:
            raise ConfigError(f"data.target: csv needs the column to predict; there are: {', '.join(columns)}")
        given = [("data.target", self.target), *(("data.features", name) for name in self.features)]
        given += [("data.client", self.client)] if self.client is not None else []
        wrong = [unknown_column(key, name, columns) for key, name in given if name not in columns]
        if wrong:
            raise ConfigError(*wrong)
        features = list(self.features) or [name for name in columns if name not in (self.target, self.client)]
        if self.target in features or not features:
            raise ConfigError(f"data.features: {', '.join(features) or 'nothing'} to predict {self.target!r} from")
        categories = {category.column: category for category in (Category.of(t, columns) for t in self.categorical)}
        for name in categories:
            if name not in features:
                raise ConfigError(f"data.categorical: {name!r} is not one of the features")
        return self.target, self.client, features, categories

    def _without_gaps(self, rows: Rows, names: list[str], is_gap: Gap) -> tuple[Rows, tuple[str, ...]]:
        """The rows that can be used under the rule for missing values, and a note where some cannot."""
        fillable = self.missing in ("mean", "median")
        looked_at = [name for name in names if not fillable or name in (self.target, self.client)]
        found = list(rows_with_gaps([rows.table.column(name) for name in looked_at], is_gap))
        if not found:
            return rows, ()
        if self.missing != "drop":
            rule = "" if fillable else ', "mean" or "median" fill it in'
            raise DataError(f'{found[0][1]}: a value is missing; data.missing = "drop" leaves the row out{rule}')
        kept = np.setdiff1d(np.arange(len(rows.table)), [index for index, _ in found])
        if not len(kept):
            raise DataError(f"csv: a value is missing in every row; first {found[0][1]}")
        return rows.take(kept), (f"{len(found):,} of {len(rows.table):,} rows left out: a value is missing",)

    def _test_rows(self, rows: Rows, clients: NDArray[np.str_], targets: Targets) -> Mask:
        if rows.named == "part":
            test: Mask = rows.file_names == "test"
        else:
            test = holdout(clients, targets.values, self.test_share, self.split_seed)
        if test.all() or not test.any():
            raise DataError(f"csv: {(~test).sum()} rows to train on, {test.sum()} to test on; see data.test_share")
        return test

    def _note(self, gaps: int) -> tuple[str, ...]:
        if not gaps:
            return ()
        whose = "all clients'" if self.scope == "all" else "the client's own"
        return (f"{gaps:,} missing values: the {self.missing} of {whose} training rows, or no category",)

    def _prepare(self, numbers: Numbers, train: Mask) -> Numbers:
        whole = filled(numbers, train, self.missing) if np.isnan(numbers).any() else numbers
        return standardised(whole, train) if self.standardise else whole


# Heart disease at four hospitals: 920 patients, 13 attributes, one file a hospital.
#
# Janosi, Steinbrunn, Pfisterer and Detrano, "Heart Disease", UCI Machine Learning Repository, 1988
# (https://archive.ics.uci.edu/dataset/45/heart+disease). A patient is ill where the diagnosis (the last column) is
# above 0. Each hospital fills and scales its own columns: none needs to know another's patients.

OFFICIAL_SET = OFFICIAL["heart_disease"]
ADVICE = "put the four processed.*.data files there (they cannot be fetched)"
COLUMNS = tuple(f"X{number}" for number in range(1, 15))
CATEGORIES = ("X3=1,2,3,4", "X7=0,1,2", "X11=1,2,3", "X13=0,3,6,7")
"""Chest pain, resting electrocardiogram, slope of the ST segment, thallium scan (0: not known, two of Cleveland's)."""


@component
class HeartDisease(KnownSet):
    """Heart disease in 920 patients of four hospitals (UCI): 13 attributes, ill or not; one hospital a client."""

    root: str | None = None
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        return find_folder("heart_disease", (OFFICIAL_SET.folder,), self.root, ADVICE)

    def read(self) -> tuple[Dataset, Report]:
        table = Csv(
            root=str(self.folder()),
            files="processed.*.data",
            columns=COLUMNS,
            target=COLUMNS[-1],
            above=0,
            categorical=CATEGORIES,
            missing="median",
            missing_values=("?", "-9"),
            scope="client",
            test_share=self.test_share,
            split_seed=self.split_seed,
        )
        return with_report("heart_disease", table.load())
