"""Tables in memory: pandas DataFrames and Series as arrays, encoded as CSV files are.

Numbers stay as they are, booleans are 0 and 1, each category of the training rows is a column of zeros and ones. A
number that is missing becomes the median of its column's training rows; a category that is missing, or that no
training row has, is all zeros. Dates, lists and the like are refused by the column's name. pandas is whatever made the
table: nothing here imports it.
"""

from datetime import date, time, timedelta
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.dataset import holdout
from ecgr.tasks.data.tables import FILLS, Missing, canonical, filled, in_order, one_hot
from ecgr.tasks.samples import is_frame, is_series

Array = NDArray[Any]
Kind = Literal["numbers", "categories"]
MOST_CATEGORIES = 1000
BOOLS = (bool, np.bool_)


def encode_halves(train: Any, test: Any, missing: Missing = "median") -> tuple[Any, Any, tuple[str, ...]]:
    """(inputs, targets) of both halves with every table in them as an array, and what a record should say."""
    if not all(isinstance(half, tuple | list) and len(half) in {2, 3} for half in (train, test)):
        return train, test, ()
    (inputs, targets, *groups), (test_inputs, test_targets, *test_groups) = train, test
    notes: tuple[str, ...] = ()
    if is_frame(inputs) or is_series(inputs):
        inputs, test_inputs, notes = _encode_inputs(_table(inputs), _table(test_inputs), missing)
    if is_frame(targets) or is_series(targets):
        targets, test_targets = _encode_targets(_table(targets), _table(test_targets))
    return (inputs, targets, *groups), (test_inputs, test_targets, *test_groups), notes


def split_frame(
    frame: Any, target: str, client: str | None, test: Any, features: Any, missing: Missing, seed: int
) -> tuple[Any, Any, tuple[str, ...]]:
    """The halves of a table: ``test`` is a share of each client's rows, a column of yes and no, or a second table."""
    if not is_frame(frame):
        raise DataError(f"from_frame: expected a pandas DataFrame, got {type(frame).__name__}")
    marked = isinstance(test, str)
    aside = [name for name in (target, client, test if marked else None) if name is not None]
    chosen = [name for name in frame.columns if name not in aside] if features is None else list(features)
    for table in (frame, test) if is_frame(test) else (frame,):
        for name in (*chosen, *aside):
            if name not in table.columns:
                there = ", ".join(map(str, table.columns[:20]))
                raise ConfigError(f"from_frame: there is no column {name!r}; there are: {there}")
    if target in chosen or not chosen:
        raise ConfigError(f"features: {', '.join(map(str, chosen)) or 'nothing'} to predict {target!r} from")
    notes: tuple[str, ...] = ()
    if missing == "drop":
        kept = frame[[*chosen, *aside]].notna().all(axis=1).to_numpy()
        if not kept.all():
            notes = (f"{(~kept).sum():,} of {len(kept):,} rows left out: a value is missing",)
        frame = frame[kept]
        test = test[test[[*chosen, *aside]].notna().all(axis=1).to_numpy()] if is_frame(test) else test
    if not is_frame(test):
        rows = _test_rows(frame, target, client, test, seed)
        frame, test = frame[~rows], frame[rows]
    halves = []
    for name, table in (("train", frame), ("test", test)):
        if not len(table):
            raise DataError(f"from_frame: no row is left to {name} with; see test=")
        ids = () if client is None else (_known(table[client]),)
        halves.append((table[chosen], table[target], *ids))
    return halves[0], halves[1], notes


def _test_rows(frame: Any, target: str, client: str | None, test: Any, seed: int) -> NDArray[np.bool_]:
    if isinstance(test, str):
        marks = frame[test]
        if not all(isinstance(each, BOOLS) for each in marks):
            raise DataError(f"test: column {test!r} must be True (to test with) or False in every row")
        return np.asarray(marks, dtype=np.bool_)
    if isinstance(test, bool) or not isinstance(test, int | float) or not 0 < test < 1:
        raise ConfigError(f"test: expected a share such as 0.2, a column or a DataFrame, got {test!r}")
    clients = np.full(len(frame), "") if client is None else _known(frame[client]).astype(np.str_)
    names = _known(frame[target])
    numbers = _kind(frame[target]) == "numbers"
    labels = names.astype(np.float64) if numbers else np.unique(names.astype(np.str_), return_inverse=True)[1]
    return holdout(clients, labels, float(test), seed)


def _table(given: Any) -> Any:
    return given.to_frame(name=given.name if given.name is not None else "values") if is_series(given) else given


def _known(column: Any) -> Array:
    """The values of a column that may lack none."""
    gaps = column.isna().to_numpy()
    if gaps.any():
        raise DataError(f"column {column.name!r}: row {int(gaps.argmax())} has no value; every row needs one")
    values: Array = column.to_numpy(dtype=object)
    return values


def _kind(column: Any) -> Kind:
    """What a column holds; one that is neither numbers nor categories is refused by its name."""
    dtype, where = column.dtype, f"column {column.name!r}"
    known = column.dropna()
    first = known.iloc[0] if len(known) else None
    kind = getattr(dtype, "kind", "O")
    text = str(dtype)
    if kind in "mM" or text.startswith(("period", "datetime", "timedelta", "interval")):
        first = first if isinstance(first, date | timedelta) else date.min
    if text != "category" and kind in "biuf":
        return "numbers"
    values = known.cat.categories if text == "category" else known
    for value in (first, *values):
        if isinstance(value, date | time | timedelta):
            advice = f"give numbers made of it, as df[{column.name!r}].dt.year"
            raise DataError(f"{where} holds dates; {advice}, or leave it out")
        if value is not None and not isinstance(value, str | Real | np.bool_):
            raise DataError(f"{where} holds {type(value).__name__} values; give numbers, text or booleans")
    numbers = text != "category" and len(known) and all(isinstance(each, Real | np.bool_) for each in known)
    return "numbers" if numbers else "categories"


def _names(column: Any) -> Any:
    """A column of categories as text."""
    return column.astype(object).map(str, na_action="ignore").astype(object)


def _categories(column: Any) -> list[str]:
    if str(column.dtype) == "category":
        return list(dict.fromkeys(canonical(str(each)) for each in column.cat.categories))
    return in_order(canonical(name) for name in _names(column).dropna())


def _numbers(column: Any, where: str) -> Array:
    if _kind(column) != "numbers" and column.notna().any():
        raise DataError(f"{where}: column {column.name!r} holds text, in the training data numbers; give one kind")
    numbers: Array = column.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(infinite.argmax())
        raise DataError(f"{where}: column {column.name!r}, row {row} is {numbers[row]}; give a finite number")
    return numbers


def _encode_inputs(train: Any, test: Any, missing: Missing) -> tuple[Array, Array, tuple[str, ...]]:
    if not is_frame(test) or {*test.columns} != {*train.columns}:
        odd = sorted(map(str, {*train.columns} ^ {*test.columns})) if is_frame(test) else []
        found = f"column {odd[0]!r} is in one of them only" if odd else f"test is {type(test).__name__}"
        raise DataError(f"inputs: train and test must be DataFrames with the same columns; {found}")
    if not train.columns.is_unique:
        raise DataError(f"inputs: two columns are named {train.columns[train.columns.duplicated()][0]!r}")
    blocks, numeric = [], []
    gaps = 0
    for name in train.columns:
        halves = train[name], test[name]
        for where, half in zip(("train", "test"), halves, strict=True):
            _kind(half)
            empty = half.isna().to_numpy()
            gaps += int(empty.sum())
            if empty.any() and missing not in FILLS:
                advice = 'fill it in, or Task.from_frame(…, missing="median")'
                raise DataError(f"{where}: column {name!r}, row {int(empty.argmax())} has no value; {advice}")
        if _kind(halves[0]) == "numbers":
            pair = [_numbers(half, where)[:, None] for where, half in zip(("train", "test"), halves, strict=True)]
        else:
            values = _categories(halves[0])
            if not 0 < len(values) <= MOST_CATEGORIES:
                count = f"{len(values):,} categories; there may be 1 to {MOST_CATEGORIES:,}"
                raise DataError(f"train: column {name!r} has {count}; leave it out (is it an id?)")
            texts = [_names(half) for half in halves]
            pair = [one_hot(text.where(text.map(canonical, na_action="ignore").isin(values)), values) for text in texts]
        numeric += [_kind(halves[0]) == "numbers"] * pair[0].shape[1]
        blocks.append(np.concatenate(pair))
    values_of_all = np.concatenate(blocks, axis=1)
    if missing in FILLS:
        values_of_all = filled(values_of_all, np.arange(len(values_of_all)) < len(train), missing)
    note = f"{gaps:,} missing values: the {missing} of the training rows, or no category"
    return values_of_all[: len(train)], values_of_all[len(train) :], (note,) if gaps else ()


def _encode_targets(train: Any, test: Any) -> tuple[Array, Array]:
    """Numbers as they are; a single column of text or categories as labels from 0."""
    if not is_frame(test):
        return _encode_targets(train, train)[0], test
    if len(train.columns) != len(test.columns):
        raise DataError(
            f"test: {len(test.columns)} target columns, in the training data {len(train.columns)}; give the same"
        )
    pairs = []
    for name, other in zip(train.columns, test.columns, strict=True):
        halves = train[name], test[other]
        for half in halves:
            _known(half)
        if _kind(halves[0]) == "numbers":
            dtype = halves[0].dtype if isinstance(halves[0].dtype, np.dtype) and halves[0].dtype.kind != "O" else None
            pairs.append([np.array(half.tolist(), dtype=dtype) for half in halves])
            continue
        values = _categories(halves[0])
        label = {value: index for index, value in enumerate(values)}
        names = [_names(half).map(canonical) for half in halves]
        unseen = [each for each in names[1] if each not in label]
        if unseen:
            raise DataError(f"test: column {other!r}: {unseen[0]!r} is no class of the training data")
        pairs.append([np.array([label[each] for each in half], dtype=np.int64) for half in names])
    if len(pairs) == 1:
        return pairs[0][0], pairs[0][1]
    return np.stack([pair[0] for pair in pairs], axis=1), np.stack([pair[1] for pair in pairs], axis=1)
