"""What a client minimises: the seam between the training loop and a loss.

A loss is a frozen component, its own configuration, and a function ``(outputs, targets) -> mean over the samples``. It
may also have, and the simulator asks for them by these names:

- ``total(outputs, targets)``: the sum over the samples; by default the mean times their number;
- ``evaluation``: the loss that test samples are scored with; by default the loss itself;
- ``needs_teacher``: it is called with a third argument, the outputs of the round's global model;
- ``for_client(class_counts)``: the loss of a client with so many samples of each class.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ecgr.component import Tensor
from ecgr.errors import DataError


class Loss(Protocol):
    """An entry of ``LOSSES``."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""
        ...


@dataclass(frozen=True, slots=True)
class CallableLoss:
    """Any function ``(outputs, targets) -> scalar``, the mean over the samples."""

    function: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What the function says."""
        return self.function(outputs, targets)


def evaluation_of(loss: Loss) -> Loss:
    """The loss that test samples are scored with."""
    own: Loss | None = getattr(loss, "evaluation", None)
    return loss if own is None else own


def total(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of a loss over the samples of a batch."""
    own: Callable[[Tensor, Tensor], Tensor] | None = getattr(loss, "total", None)
    return loss(outputs, targets) * len(targets) if own is None else own(outputs, targets)


def check_targets(loss: Loss, where: str, targets: Any, outputs: tuple[int, ...]) -> None:
    """Refuse targets that the loss cannot take from a model with ``outputs`` (without the samples' axis)."""
    own: Callable[[Any, tuple[int, ...]], str | None] | None = getattr(loss, "problem", None)
    found = None if own is None else own(targets, outputs)
    if found is not None:
        raise DataError(f"{where}: {found}")


def shaped(outputs: Tensor, targets: Tensor) -> Tensor:
    """``outputs`` in the shape of ``targets``: a model's (N, 1) is as good as (N,)."""
    return outputs.reshape(targets.shape) if outputs.numel() == targets.numel() else outputs


def first(wrong: Any) -> tuple[int, ...]:
    """The index of the first True of a boolean array."""
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def at(index: tuple[int, ...]) -> str:
    """``targets[3]`` or ``targets[3, 1]``."""
    return f"targets[{', '.join(map(str, index))}]"


def same_shape_problem(targets: Any, outputs: tuple[int, ...]) -> str | None:
    """Why a loss that compares number by number cannot: other numbers of outputs and targets a sample."""
    given = int(np.prod(targets.shape[1:]))
    wanted = int(np.prod(outputs))
    if given == wanted:
        return None
    return f"{given} targets a sample, and the model gives {wanted} outputs; they must be as many"
