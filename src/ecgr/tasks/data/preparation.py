"""From raw numbers to what a model can be trained on: who tests, what fills a gap, one scale for all columns.

Everything that is learnt from numbers (means, medians, deviations) is learnt from training rows alone.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import DataError
from ecgr.streams import stream
from ecgr.tasks.data.dataset import strata

Numbers = NDArray[np.float64]
Names = NDArray[np.str_]
Mask = NDArray[np.bool_]

Missing = Literal["refuse", "drop", "mean", "median"]
Scope = Literal["all", "client"]

FILLS: Mapping[str, Callable[..., Numbers]] = {"mean": np.nanmean, "median": np.nanmedian}


def holdout(clients: Names, targets: NDArray[Any], share: float, seed: int) -> Mask:
    """Which rows are for testing: ``share`` of each client's rows, every class in its proportion to within one row.

    Never all: a client keeps a row to train on. Its rows are shuffled, sorted by class (numbers by tenths) and marked
    at even distances. The shuffle depends on the seed and on the client's name alone, so a client that holds only its
    own rows finds the same split.

    >>> clients = np.repeat(["a", "b"], [10, 5])
    >>> marked = holdout(clients, np.arange(15) % 2, 0.2, seed=0)
    >>> marked[:10].sum(), marked[10:].sum()
    (np.int64(2), np.int64(1))
    """
    marked = np.zeros(len(clients), dtype=np.bool_)
    for client in np.unique(clients):
        rows = stream(seed, f"split {client}").permutation(np.flatnonzero(clients == client))
        rows = rows[np.argsort(strata(targets[rows]), kind="stable")]
        marks = np.minimum(np.floor(np.arange(1, len(rows) + 1) * share + 0.5), len(rows) - 1)
        marked[rows[np.diff(marks, prepend=0) > 0]] = True
    return marked


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
