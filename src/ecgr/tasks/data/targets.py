"""What is predicted: yes or no, one of several classes, several labels, or numbers; and the loss and metrics for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import DataError

Kind = Literal["auto", "binary", "classes", "numbers"]
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
        return binary_targets(values == 1, ("0", "1"))
    wrong = np.flatnonzero((values < 0) | (values != np.floor(values)))
    if len(wrong):
        raise DataError(f"{where}: targets[{wrong[0]}] is {values[wrong[0]]}; classes are whole numbers from 0")
    count = int(values.max()) + 1
    return Targets("classes", values.astype(np.int64), {"classes": count}, tuple(map(str, range(count))))


def binary_targets(yes: NDArray[np.bool_], names: tuple[str, ...]) -> Targets:
    """Yes or no."""
    return Targets("binary", yes.astype(np.int64), {"outputs": 1}, names)
