"""From the columns of tables to a matrix of features: numbers with gaps, categories one column each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data.preparation import Numbers
from ecgr.tasks.data.tables import Column, Table, canonical, in_order, usable_number

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
