"""Tables as arrays: how the columns of a DataFrame become numbers, whether a person made it or a CSV file was read.

Numbers stay as they are, booleans are 0 and 1, each category is a column of zeros and ones. A number that is missing
becomes the mean or median of its column's training rows; a category that is missing is all zeros. Of a DataFrame the
training rows decide which categories there are, and what a column holds follows from its values: dates, lists and the
like are refused by the column's name. A CSV file is a DataFrame of text, and `ecgr.tasks.data.tables` says what its
cells hold. Every complaint names the column and the row, or the file and line.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from math import isfinite
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.dataset import holdout
from ecgr.tasks.samples import is_frame, is_series

Array = NDArray[Any]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
Notes = tuple[str, ...]
Missing = Literal["refuse", "drop", "mean", "median"]

FILLS: Mapping[str, Callable[..., Numbers]] = {"mean": np.nanmean, "median": np.nanmedian}
MOST_CATEGORIES = 1000


def refuse(column: Any, wrong: Any, why: str, where: str = "") -> None:
    """Raise a `DataError` that names the place of the first wrong cell of a column, if there is one."""
    wrong = np.asarray(wrong, dtype=np.bool_)
    if wrong.any():
        first = int(wrong.argmax())
        place = f"{where}column {column.name!r}, row {first}"
        if list(column.index.names[-2:]) == ["file", "line"]:  # of a CSV file
            place = "{}: line {}, column {!r}".format(*column.index[first][-2:], column.name)
        shown = "" if column.isna().iloc[first] else f"{str(column.iloc[first])[:40]!r} "
        raise DataError(f"{place}: {shown}{why}")


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


def names_of(column: Any) -> Any:
    """The values of a column as canonical text."""
    return column.astype(object).map(lambda value: canonical(str(value)), na_action="ignore")


def labels_of(names: Any, values: Sequence[str]) -> NDArray[np.int64]:
    """The places of a column's names among ``values``; -1 for what is missing or not among them."""
    import pandas as pd  # an optional dependency, and slow to import

    return np.asarray(pd.Index(values, dtype=object).get_indexer(names), dtype=np.int64)


def one_hot(names: Any, values: Sequence[str]) -> Numbers:
    """Zeros and ones, one column for each of ``values``."""
    return np.asarray(labels_of(names, values)[:, None] == np.arange(len(values)), dtype=np.float64)


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


def features_of(
    columns: Sequence[Any], features: Sequence[Any] | None, aside: Mapping[str, Any], prefix: str = ""
) -> list[Any]:
    """The columns to predict from: ``features``, or all that are not set aside (the target, the client, …).

    ``prefix`` is what the keys of a complaint begin with.
    """
    used = {key: name for key, name in aside.items() if name is not None}
    shown = ", ".join(map(str, columns[:20])) + (", …" if len(columns) > 20 else "")
    wrong = [
        f"{prefix}{key}: there is no column {name!r}; there are: {shown}"
        for key, name in [*used.items(), *(("features", name) for name in features or ())]
        if name not in columns
    ]
    if wrong:
        raise ConfigError(*wrong)
    chosen = [name for name in columns if name not in used.values()] if features is None else list(features)
    if used["target"] in chosen or not chosen:
        said = ", ".join(map(str, chosen)) or "nothing"
        raise ConfigError(f"{prefix}features: {said} to predict {used['target']!r} from")
    return chosen


def without_gaps(
    table: Any, features: Sequence[Any], others: Sequence[Any], missing: str, prefix: str = "", where: str = ""
) -> tuple[Any, Notes]:
    """The rows that can be used by the rule ``missing``, and what a record should say of those that cannot.

    Gaps in ``features`` may be filled in, those in ``others`` (the target, the client) never.
    """
    gaps = table[others if missing in FILLS else [*features, *others]].isna()
    rows = gaps.any(axis=1).to_numpy()
    if not rows.any():
        return table, ()
    first = table[gaps.columns[gaps.to_numpy()[rows.argmax()].argmax()]]
    if missing != "drop":
        fills = "" if missing in FILLS else ', "mean" or "median" fill it in'
        refuse(first, rows, f'a value is missing; {prefix}missing = "drop" leaves the row out{fills}', where)
    if rows.all():
        refuse(first, rows, "a value is missing in every row, this is the first", where)
    return table[~rows], (f"{rows.sum():,} of {len(rows):,} rows left out: a value is missing",)


def encode_halves(train: Any, test: Any, missing: Missing = "median") -> tuple[Any, Any, Notes]:
    """(inputs, targets) of both halves with every table in them as an array, and what a record should say."""
    if not all(isinstance(half, tuple | list) and len(half) in {2, 3} for half in (train, test)):
        return train, test, ()
    (inputs, targets, *groups), (test_inputs, test_targets, *test_groups) = train, test
    notes: Notes = ()
    if is_frame(inputs) or is_series(inputs):
        inputs, test_inputs, notes = _encode_inputs(_table(inputs), _table(test_inputs), missing)
    if is_frame(targets) or is_series(targets):
        targets, test_targets = _encode_targets(_table(targets), _table(test_targets))
    return (inputs, targets, *groups), (test_inputs, test_targets, *test_groups), notes


def split_frame(
    frame: Any, target: str, client: str | None, test: Any, features: Any, missing: Missing, seed: int
) -> tuple[Any, Any, Notes]:
    """The halves of a table: ``test`` is a share of each client's rows, a column of yes and no, or a second table."""
    if not is_frame(frame):
        raise DataError(f"from_frame: expected a pandas DataFrame, got {type(frame).__name__}")
    aside = {"target": target, "client": client, "test": test if isinstance(test, str) else None}
    chosen = features_of(list(frame.columns), None if features is None else list(features), aside)
    needed = [name for name in aside.values() if name is not None]
    if is_frame(test):
        features_of(list(test.columns), chosen, aside)
        test = without_gaps(_table(test), chosen, needed, missing, where="test: ")[0]
    frame, notes = without_gaps(_table(frame), chosen, needed, missing)
    if not is_frame(test):
        rows = _test_rows(frame, target, client, test, seed)
        frame, test = frame[~rows], frame[rows]
    halves = []
    for name, table in (("train", frame), ("test", test)):
        if not len(table):
            raise DataError(f"from_frame: no row is left to {name} with; see test=")
        ids = () if client is None else (table[client].to_numpy(dtype=object),)
        halves.append((table[chosen], table[target], *ids))
    return halves[0], halves[1], notes


def _test_rows(frame: Any, target: str, client: str | None, test: Any, seed: int) -> Mask:
    if isinstance(test, str):
        marks = frame[test]
        wrong = [not isinstance(each, bool | np.bool_) for each in marks]
        refuse(marks, wrong, "is neither True (to test with) nor False", "test: ")
        return np.asarray(marks, dtype=np.bool_)
    if isinstance(test, bool) or not isinstance(test, int | float) or not 0 < test < 1:
        raise ConfigError(f"test: expected a share such as 0.2, a column or a DataFrame, got {test!r}")
    ids = None if client is None else frame[client].to_numpy(dtype=object)
    return _share_of(frame[target], ids, float(test), seed)


def part_pair(train: Any, clients: Any, share: float) -> tuple[Any, Any]:
    """A DataFrame and its targets as two such pairs: ``share`` of each client's rows are held out.

    Where ``clients`` are an array, or ``train`` has them as its third entry, so has each half.
    """
    import pandas as pd  # an optional dependency, and slow to import

    inputs, targets, *groups = train
    if groups and clients is not None and np.ndim(clients):
        raise ConfigError("clients: given twice, as clients and as the third entry of train; leave one out")
    targets = targets if is_frame(targets) or is_series(targets) else pd.DataFrame(np.asarray(targets))
    ids = np.asarray(groups[0]) if groups else None if clients is None or np.ndim(clients) == 0 else np.asarray(clients)
    for name, column in (("targets", targets), ("clients", ids)):
        if column is not None and len(column) != len(inputs):
            raise DataError(f"train: {len(inputs)} rows and {len(column)} {name}; give one for each row")
    rows = _share_of(_table(targets).iloc[:, 0], ids, share, seed=0)
    targets = train[1] if is_frame(train[1]) or is_series(train[1]) else np.asarray(train[1])
    halves = [(inputs[at], targets[at], *(() if ids is None else (ids[at],))) for at in (~rows, rows)]
    return halves[0], halves[1]


def _share_of(targets: Any, clients: Array | None, share: float, seed: int) -> Mask:
    """Which rows are held out: a share of each client's, every class in its proportion."""
    values = targets.to_numpy(dtype=object)
    numbers = _holds_numbers(targets)
    labels = values.astype(np.float64) if numbers else np.unique(values.astype(np.str_), return_inverse=True)[1]
    ids = np.full(len(values), "") if clients is None else clients.astype(np.str_)
    return holdout(ids, labels, share, seed)


def _table(given: Any) -> Any:
    """A Series as a table of one column; two columns of one name are refused."""
    if is_series(given):
        return given.to_frame(name=given.name if given.name is not None else "values")
    if is_frame(given) and not given.columns.is_unique:
        raise DataError(f"inputs: two columns are named {given.columns[given.columns.duplicated()][0]!r}")
    return given


def _holds_numbers(column: Any) -> bool:
    """Whether a column holds numbers, not categories; what is neither is refused by the column's name."""
    if column.dtype.kind in "biuf":
        return True
    of_categories, where = hasattr(column, "cat"), f"column {column.name!r}"
    values = column.cat.categories if of_categories else column.dropna()
    for value in values:
        if isinstance(value, date | time | timedelta) or type(value).__name__ == "Period":
            advice = f"give numbers made of it, as df[{column.name!r}].dt.year"
            raise DataError(f"{where} holds dates; {advice}, or leave it out")
        if not isinstance(value, str | Real | np.bool_):
            raise DataError(f"{where} holds {type(value).__name__} values; give numbers, text or booleans")
    return not of_categories and len(values) > 0 and not any(isinstance(each, str) for each in values)


def _categories(column: Any) -> list[str]:
    if hasattr(column, "cat"):
        return list(dict.fromkeys(canonical(str(each)) for each in column.cat.categories))
    return in_order(names_of(column).dropna())


def _numbers(column: Any, where: str) -> Numbers:
    if not _holds_numbers(column) and column.notna().any():
        raise DataError(f"{where}: column {column.name!r} holds text, in the training data numbers; give one kind")
    numbers: Numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    refuse(column, np.isinf(numbers), "is not finite; give a finite number", f"{where}: ")
    return numbers


def _encode_inputs(train: Any, test: Any, missing: Missing) -> tuple[Array, Array, Notes]:
    if not is_frame(test) or {*test.columns} != {*train.columns}:
        odd = sorted(map(str, {*train.columns} ^ {*test.columns})) if is_frame(test) else []
        found = f"column {odd[0]!r} is in one of them only" if odd else f"test is {type(test).__name__}"
        raise DataError(f"inputs: train and test must be DataFrames with the same columns; {found}")
    blocks = []
    for name in train.columns:
        halves = train[name], test[name]
        if _holds_numbers(halves[0]):
            pair = [_numbers(half, where) for half, where in zip(halves, ("train", "test"), strict=True)]
            blocks.append(np.concatenate(pair)[:, None])
            continue
        _holds_numbers(halves[1])  # or something that is neither, which is refused
        values = _categories(halves[0])
        if not 0 < len(values) <= MOST_CATEGORIES:
            count = f"{len(values):,} categories; there may be 1 to {MOST_CATEGORIES:,}"
            raise DataError(f"train: column {name!r} has {count}; leave it out (is it an id?)")
        blocks.append(np.concatenate([one_hot(names_of(half), values) for half in halves]))
    rows = len(train)
    encoded = np.concatenate(blocks, axis=1)
    if missing in FILLS:
        encoded = filled(encoded, np.arange(len(encoded)) < rows, missing)
    gaps = sum(int(half.isna().sum().sum()) for half in (train, test))
    note = f"{gaps:,} missing values: the {missing} of the training rows, or no category"
    return encoded[:rows], encoded[rows:], (note,) if gaps else ()


def _encode_targets(train: Any, test: Any) -> tuple[Array, Array]:
    """Numbers as they are; a single column of text or categories as labels from 0."""
    if not is_frame(test):
        return _encode_targets(train, train)[0], test
    if len(train.columns) != len(test.columns):
        here, there = len(test.columns), len(train.columns)
        raise DataError(f"test: {here} target columns, in the training data {there}; give the same")
    pairs = []
    for name, other in zip(train.columns, test.columns, strict=True):
        halves = train[name], test[other]
        for half in halves:
            refuse(half, half.isna(), "a value is missing; every row needs one")
        if _holds_numbers(halves[0]):
            dtype = halves[0].dtype if isinstance(halves[0].dtype, np.dtype) and halves[0].dtype.kind != "O" else None
            pairs.append([np.array(half.tolist(), dtype=dtype) for half in halves])
            continue
        values = _categories(halves[0])
        pairs.append([labels_of(names_of(half), values) for half in halves])
        refuse(halves[1], pairs[-1][1] < 0, "is no class of the training data", "test: ")
    first, second = zip(*pairs, strict=True)
    return (first[0], second[0]) if len(pairs) == 1 else (np.stack(first, axis=1), np.stack(second, axis=1))
