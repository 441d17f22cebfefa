"""What is predicted: yes or no, one of several classes, several labels, or numbers; and the loss and metrics for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import DataError
from ecgr.tasks.data.tables import Column, as_number, canonical, in_order, usable_number

Kind = Literal["auto", "binary", "classes", "numbers"]
MOST_GUESSED = 20
"""Whole numbers with at most so many different values are taken for classes where nobody says what they are."""

Values = NDArray[Any]
DEFAULTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "binary": ("bce", ("auc", "accuracy")),
    "labels": ("bce", ("auc", "macro_f1")),
    "classes": ("cross_entropy", ("accuracy",)),
    "numbers": ("mse", ("r2", "mae")),
    "tokens": ("cross_entropy", ("accuracy", "perplexity")),
}
"""Loss and metrics by the kind of target; the first metric decides."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets as numbers, and what a model and a record must know of them."""

    kind: str
    values: Values
    shape: Mapping[str, int]
    classes: tuple[str, ...] = ()

    @property
    def loss(self) -> str:
        """The loss that goes with them."""
        return DEFAULTS[self.kind][0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that go with them."""
        return DEFAULTS[self.kind][1]


def column_targets(column: Column, kind: Kind, above: float | None = None) -> Targets:
    """The targets that a column of text writes.

    Left to itself (``kind = "auto"``) a column of two values is yes or no, one of text or of at most twenty different
    whole numbers is of classes, any other is of numbers. ``above`` makes numbers a yes where they are above it.

    >>> column = Column("degree", ("0", "3", "0"), ())
    >>> column_targets(column, "auto").values.tolist(), column_targets(column, "auto", above=5).values.tolist()
    ([0, 1, 0], [0, 0, 0])
    """
    if above is not None:
        numbers = column_numbers(column, "data.above needs numbers")
        return _binary(numbers > above, (f"at most {above:g}", f"above {above:g}"))
    names = [canonical(text) for text in column.texts]
    distinct = in_order(names)
    chosen = kind if kind != "auto" else _guess(distinct)
    return READERS[chosen](column, names, distinct)


def column_numbers(column: Column, advice: str) -> NDArray[np.float64]:
    """A column of numbers; the first cell that is none is refused."""
    found = np.empty(len(column.texts))
    for index, text in enumerate(column.texts):
        found[index] = usable_number(column.where(index), text, advice)
    return found


def array_targets(where: str, values: Values, kind: Kind) -> Targets:
    """The targets of an array: whole numbers are classes (0 and 1: no and yes; in several columns: labels)."""
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not len(values):
        raise DataError(f"{where}: targets are {values.dtype} {values.shape}; give numbers, (N,) or (N, columns)")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    whole = values.dtype.kind in "biu"
    zero_or_one = bool(((values == 0) | (values == 1)).all())
    if kind == "numbers" or (kind == "auto" and not whole):
        return Targets("numbers", values.astype(np.float32), {"outputs": values.shape[1] if values.ndim == 2 else 1})
    if values.ndim == 2 or kind == "binary" or (kind == "auto" and zero_or_one):
        if not zero_or_one:
            place = tuple(np.argwhere((values != 0) & (values != 1))[0].tolist())
            raise DataError(f"{where}: targets[{', '.join(map(str, place))}] is {values[place]}; yes is 1, no is 0")
        if values.ndim == 2:
            return Targets("labels", values.astype(np.int64), {"outputs": values.shape[1]})
        return _binary(values == 1, ("0", "1"))
    wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
    if len(wrong):
        raise DataError(f"{where}: targets[{wrong[0]}] is {values[wrong[0]]}; classes are whole numbers from 0")
    count = int(values.max()) + 1
    return Targets("classes", values.astype(np.int64), {"classes": count}, tuple(map(str, range(count))))


def _guess(distinct: Sequence[str]) -> str:
    if len(distinct) == 2:
        return "binary"
    numbers = [as_number(name) for name in distinct]
    few = len(distinct) <= MOST_GUESSED and all(number is None or number.is_integer() for number in numbers)
    return "classes" if few or None in numbers else "numbers"


def _binary(yes: NDArray[np.bool_], names: tuple[str, ...]) -> Targets:
    return Targets("binary", yes.astype(np.int64), {"outputs": 1}, names)


def _binary_column(column: Column, names: Sequence[str], distinct: Sequence[str]) -> Targets:
    values = ["0", "1"] if set(distinct) <= {"0", "1"} else list(distinct)
    if len(values) != 2:
        index = next((i for i, name in enumerate(names) if name not in values[:2]), 0)
        raise DataError(
            f"{column.where(index)}: {column.texts[index][:40]!r} makes {len(distinct)} different values;"
            " a binary target has two, or data.above says from which number on it is a yes"
        )
    return _binary(np.array(names) == values[1], tuple(values))


def _class_column(column: Column, names: Sequence[str], distinct: Sequence[str]) -> Targets:
    if len(distinct) < 2:
        raise DataError(f"{column.where(0)}: every row has {distinct[0][:40]!r}; there must be at least two classes")
    index = {name: label for label, name in enumerate(distinct)}
    values = np.array([index[name] for name in names], dtype=np.int64)
    return Targets("classes", values, {"classes": len(distinct)}, tuple(distinct))


def _number_column(column: Column, _names: Sequence[str], _distinct: Sequence[str]) -> Targets:
    return Targets("numbers", column_numbers(column, "or set data.kind").astype(np.float32), {"outputs": 1})


READERS: Mapping[str, Callable[[Column, Sequence[str], Sequence[str]], Targets]] = {
    "binary": _binary_column,
    "classes": _class_column,
    "numbers": _number_column,
}
