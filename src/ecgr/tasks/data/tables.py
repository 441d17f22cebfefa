"""CSV files: columns for features, target and client, or a folder with one file a client.

A file is read as a DataFrame of text, indexed by file and line, so that every complaint can name its place. What a cell
says (a number, a category, nothing) is decided here; `ecgr.tasks.data.frames` makes arrays of it. Everything that is
learnt from numbers (means, medians, deviations) is learnt from training rows alone.
"""

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.component import component
from ecgr.errors import ConfigError, DataError, missing_extra
from ecgr.tasks.data.dataset import Dataset, Kind, Share, SplitSeed, Targets, apart, binary_targets, holdout
from ecgr.tasks.data.frames import (
    FILLS,
    Mask,
    Missing,
    Notes,
    Numbers,
    as_number,
    canonical,
    features_of,
    filled,
    in_order,
    labels_of,
    names_of,
    one_hot,
    refuse,
    without_gaps,
)
from ecgr.tasks.data.sets import compared, known_folder, own_path, read_text
from ecgr.tasks.samples import Samples

if TYPE_CHECKING:
    from pandas import DataFrame, Series

Names = NDArray[np.str_]
TextList = Annotated[tuple[str, ...], Field(strict=False)]
Scope = Literal["all", "client"]

LARGEST = 1.8e19
"""About the square root of float32's largest number: scaling and squared errors stay finite."""
MOST_GUESSED = 20
"""Whole numbers with at most this many different values are taken for classes where nobody says what they are."""


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
        table, notes = self._usable(table, features)
        targets = column_targets(table[self.target], self.kind, self.above)
        blocks = [_encoded(table[name], categories.get(name)) for name in features]
        values = np.concatenate(blocks, axis=1)
        numeric = np.repeat([name not in categories for name in features], [block.shape[1] for block in blocks])
        names = table.index.get_level_values("name").to_numpy(dtype=np.str_)
        known = self.client is not None or (self.folder().is_dir() and not split)
        clients = table[self.client].to_numpy(dtype=np.str_) if self.client else names
        test = names == "test" if split else holdout(clients, targets.values, self.test_share, self.split_seed)
        if test.all() or not test.any():
            raise DataError(f"csv: {(~test).sum()} rows to train on, {test.sum()} to test on; see data.test_share")
        inputs = np.where(numeric, self._scaled(values, clients, ~test), values).astype(np.float32)
        train, held_out = apart(Samples(inputs, targets.values, clients if known else None), test)
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
        aside = {"target": self.target, "client": self.client}
        features = features_of(columns, self.features or None, aside, prefix="data.")
        categories = dict(named_categories(text, columns) for text in self.categorical)
        if strange := [name for name in categories if name not in features]:
            among = ", ".join(features[:20])
            raise ConfigError(f"data.categorical: there is no column {strange[0]!r} among the features: {among}")
        return features, categories

    def _usable(self, table: "DataFrame", features: list[str]) -> tuple["DataFrame", Notes]:
        """The rows that can be used, NaN for what is missing in them, and what a record should say."""
        others = [name for name in (self.target, self.client) if name]
        known = {"", *(canonical(value.strip()) for value in self.missing_values)}
        table = table[[*features, *others]]
        table = table.mask(table.map(lambda text: canonical(text) in known))
        table, notes = without_gaps(table, features, others, self.missing, prefix="data.")
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


def as_numbers(column: "Series[Any]", advice: str) -> Numbers:
    """A column of numbers, NaN where one is missing; the first cell that is not one, or is too large, is refused."""
    numbers: Numbers = column.map(as_number, na_action="ignore").to_numpy(dtype=np.float64, na_value=np.nan)
    refuse(column, np.isnan(numbers) & column.notna(), f"is not a number; {advice}")
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


def _encoded(column: "Series[Any]", categories: Sequence[str] | None) -> Numbers:
    """A feature: numbers, or zeros and ones for the categories that are named, or found where none are."""
    if categories is None:
        return as_numbers(column, "name the column in data.categorical, or the value in data.missing_values")[:, None]
    names = names_of(column)
    values = categories or in_order(names.dropna())
    refuse(column, names.notna() & ~names.isin(values), f"is not one of {', '.join(values)}; see data.categorical")
    return one_hot(names, values)


def column_targets(column: "Series[Any]", kind: Kind, above: float | None = None) -> Targets:
    """The targets that a column of text writes.

    Left to itself (``kind = "auto"``) a column of two values is yes or no, one of text or of at most twenty different
    whole numbers is of classes, any other is of numbers. ``above`` makes numbers a yes where they are above it.
    """
    if above is not None:
        yes = as_numbers(column, "data.above needs numbers") > above
        return binary_targets(yes, (f"at most {above:g}", f"above {above:g}"))
    names = names_of(column)
    distinct = in_order(names)
    chosen = kind if kind != "auto" else _guess(distinct)
    if chosen == "numbers":
        return Targets("numbers", as_numbers(column, "or set data.kind").astype(np.float32), {"outputs": 1})
    if chosen == "binary":
        values = ["0", "1"] if set(distinct) <= {"0", "1"} else distinct
        two = f"makes {len(distinct)} different values; a binary target has two, or data.above says what is a yes"
        refuse(column, ~names.isin(values[:2]) | (len(values) < 2), two)
        return binary_targets((names == values[1]).to_numpy(dtype=np.bool_), tuple(values))
    refuse(column, np.full(len(column), len(distinct) < 2), "is in every row; there must be at least two classes")
    return Targets("classes", labels_of(names, distinct), {"classes": len(distinct)}, tuple(distinct))


def _guess(distinct: Sequence[str]) -> str:
    if len(distinct) == 2:
        return "binary"
    numbers = [as_number(name) for name in distinct]
    few = len(distinct) <= MOST_GUESSED and all(number is None or number.is_integer() for number in numbers)
    return "classes" if few or None in numbers else "numbers"


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
