"""Squared error: the loss of regression."""

from typing import Any

from ecgr.component import Tensor, component, torch
from ecgr.tasks.losses.protocol import same_shape_problem, shaped


@component
class MSE:
    """Mean squared error; targets are numbers, (N,) or (N, outputs)."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over samples and outputs."""
        predicted = shaped(outputs, targets)
        return torch.nn.functional.mse_loss(predicted, targets.to(predicted.dtype))

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        """As many targets as outputs."""
        return same_shape_problem(targets, outputs)
