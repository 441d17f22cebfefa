"""Tables in CSV files: columns for features, target and client, or a folder with one file a client.

A table is a DataFrame of text, indexed by file and line, so that every complaint can name its place; what a cell says
(a number, a category, nothing) is decided here. Everything that is learnt from numbers (means, medians, deviations) is
learnt from training rows alone.
"""

import csv
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.component import component
from ecgr.errors import ConfigError, DataError, missing_extra
from ecgr.tasks.data.dataset import Dataset, Kind, Share, SplitSeed, Targets, binary_targets, holdout
from ecgr.tasks.data.sets import compared, known_folder, own_path, read_text
from ecgr.tasks.samples import Samples

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Mask = NDArray[np.bool_]
TextList = Annotated[tuple[str, ...], Field(strict=False)]
Missing = Literal["refuse", "drop", "mean", "median"]
Scope = Literal["all", "client"]

LARGEST = 1.8e19
"""About the square root of float32's largest number: scaling and squared errors stay finite."""
MOST_GUESSED = 20
"""Whole numbers with at most so many different values are taken for classes where nobody says what they are."""
FILLS: Mapping[str, Callable[..., Numbers]] = {"mean": np.nanmean, "median": np.nanmedian}


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

    def brings_test(self) -> bool:
        """Whether the rows to test with are in a file of their own."""
        names = {path.name for path in self.folder().glob(self.files)}
        return names == {self.files.replace("*", half) for half in ("train", "test")}

    def load(self) -> Dataset:
        table, files = self._read()
        split = {*table.index.unique("name")} == {"train", "test"}
        features, categories = self._columns(list(table.columns))
        table, notes = self._without_gaps(table, features)
        targets = column_targets(table[self.target], self.kind, self.above)
        values, numeric = encode(table, features, categories)
        names = table.index.get_level_values("name").to_numpy(dtype=np.str_)
        known = self.client is not None or (self.folder().is_dir() and not split)
        clients = table[self.client].to_numpy(dtype=np.str_) if self.client else names
        test = names == "test" if split else holdout(clients, targets.values, self.test_share, self.split_seed)
        if test.all() or not test.any():
            raise DataError(f"csv: {(~test).sum()} rows to train on, {test.sum()} to test on; see data.test_share")
        inputs = np.where(numeric, self._scaled(values, clients, ~test), values).astype(np.float32)
        train, held_out = (
            Samples(inputs[rows], targets.values[rows], clients[rows] if known else None) for rows in (~test, test)
        )
        return targets.dataset(train, held_out, {"features": inputs.shape[1]}, files=files, notes=notes)

    def check(self) -> tuple[str, tuple[str, ...], dict[str, int]]:
        """Read every row, which needs no target."""
        return "whole", (), {"rows": len(self._read()[0])}

    def _read(self) -> tuple["DataFrame", dict[str, str]]:
        """The rows of all files, in the order of what their names say, and the hash of each file."""
        if len(self.separator) != 1:
            raise ConfigError(f"data.separator: expected one character, got {self.separator!r}")
        if self.files.count("*") != 1 or "/" in self.files:
            raise ConfigError(f"data.files: expected a name with one * for the client, got {self.files!r}")
        path = self.folder()
        paths = sorted(path.glob(self.files)) if path.is_dir() else [path]
        if not paths:
            raise DataError(f"csv: no {self.files} in {path}; data.files says how the files are called")
        before, _, after = self.files.partition("*")
        tables, files = {}, {}
        for file in paths:
            text, files[file.name] = read_text(file)
            name = file.name[len(before) : len(file.name) - len(after)] if path.is_dir() else ""
            tables[name] = parse_table(file, text, self.separator, self.columns)
            columns = next(iter(tables.values())).columns
            odd = sorted({*tables[name].columns} ^ {*columns})
            if odd:
                raise DataError(f"{file}: has other columns than {paths[0]} ({odd[0]!r} is in one of them)")
        import pandas as pd  # which has read them

        return pd.concat({name: table[columns] for name, table in tables.items()}, names=["name"]), files

    def _columns(self, columns: list[str]) -> tuple[list[str], dict[str, list[str]]]:
        """The features, and the categories of those that have some."""
        if self.target is None:
            raise ConfigError(f"data.target: csv needs the column to predict; there are: {', '.join(columns)}")
        categories = dict(named_categories(text, columns) for text in self.categorical)
        given = {"target": [self.target], "features": self.features, "client": [self.client] if self.client else []}
        shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
        wrong = [
            f"data.{key}: there is no column {name!r}; there are: {shown}"
            for key, names in {**given, "categorical": categories}.items()
            for name in names
            if name not in columns
        ]
        if wrong:
            raise ConfigError(*wrong)
        features = list(self.features) or [name for name in columns if name not in (self.target, self.client)]
        if self.target in features or not features:
            raise ConfigError(f"data.features: {', '.join(features) or 'nothing'} to predict {self.target!r} from")
        for name in categories:
            if name not in features:
                raise ConfigError(f"data.categorical: {name!r} is not one of the features")
        return features, categories

    def _without_gaps(self, table: "DataFrame", features: list[str]) -> tuple["DataFrame", tuple[str, ...]]:
        """The rows that can be used, NaN for what is missing in them, and what a record should say."""
        needed = [name for name in (self.target, self.client) if name]
        known = {"", *(canonical(value.strip()) for value in self.missing_values)}
        table = table[[*features, *needed]]
        table = table.mask(table.map(lambda text: canonical(text) in known))
        fillable = self.missing in FILLS
        gaps = table[needed if fillable else list(table.columns)].isna()
        rows = gaps.any(axis=1).to_numpy()
        notes: tuple[str, ...] = ()
        if rows.any():
            column = gaps.columns[gaps.to_numpy()[rows.argmax()].argmax()]
            if self.missing != "drop":
                rule = "" if fillable else ', "mean" or "median" fill it in'
                refuse(gaps[column], rows, f'a value is missing; data.missing = "drop" leaves the row out{rule}')
            if rows.all():
                refuse(gaps[column], rows, "a value is missing in every row, this is the first")
            notes = (f"{rows.sum():,} of {len(rows):,} rows left out: a value is missing",)
        table = table[~rows]
        filled_in = int(table[features].isna().sum().sum())
        if filled_in:
            whose = "all clients'" if self.scope == "all" else "the client's own"
            notes += (f"{filled_in:,} missing values: the {self.missing} of {whose} training rows, or no category",)
        return table, notes

    def _scaled(self, values: Numbers, clients: Names, train: Mask) -> Numbers:
        """The columns filled and scaled: all rows at once, or each client's by themselves."""
        result = np.empty_like(values)
        owners = clients if self.scope == "client" else np.full(len(clients), "")
        for owner in np.unique(owners):
            rows = owners == owner
            if not train[rows].any():
                raise DataError(f'client {str(owner)!r} has no training row to scale by; set data.scope = "all"')
            own = filled(values[rows], train[rows], self.missing) if self.missing in FILLS else values[rows]
            result[rows] = standardised(own, train[rows]) if self.standardise else own
        return result


def parse_table(path: Path, text: str, separator: str = ",", columns: Sequence[str] = ()) -> "DataFrame":
    """A file whose first line names the columns; or, given ``columns``, one that may do without that line.

    Cells are text without the spaces around them; the index has the file and line of each row.
    """
    try:
        import pandas as pd  # an optional dependency, and slow to import
    except ImportError:
        raise missing_extra("reading tables", "data") from None
    quoting = f"a value that holds a {separator!r} stands in quotes, and data.separator says what stands between values"
    reader = csv.reader(StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
    rows: dict[int, list[str]] = {}
    try:
        for row in reader:
            rows[reader.line_num] = [cell.strip() for cell in row]
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num} is not CSV ({error}); {quoting}") from None
    rows = {line: row for line, row in rows.items() if any(row)}
    names = list(columns) or next(iter(rows.values()), [])
    if rows and next(iter(rows.values())) == names:
        del rows[next(iter(rows))]
    if not rows:
        raise DataError(f"{path}: has no row of data")
    for index, name in enumerate(names):
        if not name or name in names[:index]:
            problem = f"two columns are named {name!r}" if name else f"column {index + 1} has no name"
            raise DataError(f"{path}: line 1: {problem}")
    for line, row in rows.items():
        if len(row) != len(names):
            raise DataError(f"{path}: line {line} has {len(row)} values for {len(names)} columns; {quoting}")
    index = pd.MultiIndex.from_product([[path], rows], names=["file", "line"])
    return pd.DataFrame(list(rows.values()), index, names, dtype=str)


def refuse(column: "Series[Any]", wrong: Mask, why: str) -> None:
    """Raise a `DataError` that names the place of the first wrong cell of a column, if there is one."""
    if wrong.any():
        first = int(wrong.argmax())
        (file, line), cell = column.index[first][-2:], column.iloc[first]
        shown = f"{cell[:40]!r} " if isinstance(cell, str) else ""
        raise DataError(f"{file}: line {line}, column {str(column.name)!r}: {shown}{why}")


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
    return sorted(set(values), key=lambda value: (as_number(value) is None, as_number(value) or 0.0, value))


def as_numbers(column: "Series[Any]", advice: str) -> Numbers:
    """A column of numbers, NaN where one is missing; the first cell that is not one, or is too large, is refused."""
    numbers: Numbers = column.map(as_number, na_action="ignore").to_numpy(dtype=np.float64, na_value=np.nan)
    refuse(column, np.isnan(numbers) & column.notna().to_numpy(), f"is not a number; {advice}")
    limit = f"numbers go up to {LARGEST:.1e} (whose square float32 can hold)"
    refuse(column, np.abs(numbers) > LARGEST, f"is too large, {limit}; correct it, or see data.missing_values")
    return numbers


def named_categories(text: str, columns: Sequence[str]) -> tuple[str, list[str]]:
    """``"sex"``, or ``"sex=f,m"`` with all the categories there can be; none means those that are found.

    >>> named_categories("pain=1,2.0,3", ["age", "pain"])
    ('pain', ['1', '2', '3'])
    """
    name, equals, values = text.rpartition("=")
    if text in columns or not equals:
        return text, []
    return name, list(dict.fromkeys(canonical(value.strip()) for value in values.split(",")))


def one_hot(column: "Series[Any]", values: Sequence[str]) -> Numbers:
    """Zeros and ones, one column for each category, all zeros where it is missing."""
    names = column.map(canonical, na_action="ignore")
    values = values or in_order(names.dropna())
    wrong = (names.notna() & ~names.isin(values)).to_numpy()
    refuse(column, wrong, f"is not one of {', '.join(values)}; see data.categorical")
    found = names.to_numpy(dtype=object)[:, None] == np.array(values, dtype=object)
    return np.asarray(found, dtype=np.float64)


def encode(
    table: "DataFrame", features: Sequence[str], categories: Mapping[str, Sequence[str]]
) -> tuple[Numbers, Mask]:
    """The features in their order, NaN where a number is missing, and which columns are of numbers."""
    advice = "name the column in data.categorical, or the value in data.missing_values"
    blocks = [
        one_hot(table[name], categories[name]) if name in categories else as_numbers(table[name], advice)[:, None]
        for name in features
    ]
    numeric = np.repeat([name not in categories for name in features], [block.shape[1] for block in blocks])
    return np.concatenate(blocks, axis=1), numeric


def column_targets(column: "Series[Any]", kind: Kind, above: float | None = None) -> Targets:
    """The targets that a column of text writes.

    Left to itself (``kind = "auto"``) a column of two values is yes or no, one of text or of at most twenty different
    whole numbers is of classes, any other is of numbers. ``above`` makes numbers a yes where they are above it.
    """
    if above is not None:
        yes = as_numbers(column, "data.above needs numbers") > above
        return binary_targets(yes, (f"at most {above:g}", f"above {above:g}"))
    names = column.map(canonical)
    distinct = in_order(names)
    chosen = kind if kind != "auto" else _guess(distinct)
    if chosen == "numbers":
        return Targets("numbers", as_numbers(column, "or set data.kind").astype(np.float32), {"outputs": 1})
    if chosen == "binary":
        values = ["0", "1"] if set(distinct) <= {"0", "1"} else distinct
        two = f"makes {len(distinct)} different values; a binary target has two, or data.above says what is a yes"
        refuse(column, (~names.isin(values[:2])).to_numpy() | (len(values) < 2), two)
        return binary_targets((names == values[1]).to_numpy(dtype=np.bool_), tuple(values))
    refuse(column, np.full(len(column), len(distinct) < 2), "is in every row; there must be at least two classes")
    labels = names.map({name: label for label, name in enumerate(distinct)}).to_numpy(dtype=np.int64)
    return Targets("classes", labels, {"classes": len(distinct)}, tuple(distinct))


def _guess(distinct: Sequence[str]) -> str:
    if len(distinct) == 2:
        return "binary"
    numbers = [as_number(name) for name in distinct]
    few = len(distinct) <= MOST_GUESSED and all(number is None or number.is_integer() for number in numbers)
    return "classes" if few or None in numbers else "numbers"


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


CATEGORIES = ("X3=1,2,3,4", "X7=0,1,2", "X11=1,2,3", "X13=0,3,6,7")
"""Chest pain, resting electrocardiogram, slope of the ST segment, thallium scan (0: not known, two of Cleveland's)."""


@component
class HeartDisease:
    """Heart disease in 920 patients of four hospitals (UCI): 13 attributes, ill or not; one hospital a client.

    Janosi, Steinbrunn, Pfisterer and Detrano, "Heart Disease", UCI Machine Learning Repository, 1988
    (https://archive.ics.uci.edu/dataset/45/heart+disease). A patient is ill where the diagnosis (the last column) is
    above 0. Each hospital fills and scales its own columns: none needs to know another's patients.
    """

    root: str | None = None
    test_share: Share = 0.2
    split_seed: SplitSeed = 0

    def folder(self) -> Path:
        advice = "put the four processed.*.data files there (they cannot be fetched)"
        return known_folder("heart_disease", self.root, advice)

    def load(self) -> Dataset:
        table = Csv(
            root=str(self.folder()),
            files="processed.*.data",
            columns=tuple(f"X{number}" for number in range(1, 15)),
            target="X14",
            above=0,
            categorical=CATEGORIES,
            missing="median",
            missing_values=("?", "-9"),
            scope="client",
            test_share=self.test_share,
            split_seed=self.split_seed,
        )
        return compared("heart_disease", table.load())
