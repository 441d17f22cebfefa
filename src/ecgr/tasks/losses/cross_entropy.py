"""Cross entropy of class scores: the loss of classification, and of the next character."""

from typing import Any

from ecgr.component import Tensor, component, torch
from ecgr.tasks.losses.protocol import at, first


@component
class CrossEntropy:
    """Cross entropy; targets are classes (N,), outputs scores (N, classes), further axes after these."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the samples."""
        return torch.nn.functional.cross_entropy(outputs, targets.long())

    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum over the samples; of each, the mean over its further axes."""
        summed = torch.nn.functional.cross_entropy(outputs, targets.long(), reduction="sum")
        return summed if targets.ndim == 1 else summed * (len(targets) / targets.numel())

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        """Targets must be whole numbers below the number of scores."""
        if targets.dtype.kind not in "biu":
            return f"targets are {targets.dtype}; cross_entropy takes classes: whole numbers from 0"
        if len(outputs) != targets.ndim or outputs[1:] != targets.shape[1:]:
            return f"targets of shape {('N', *targets.shape[1:])} do not go with outputs {('N', *outputs)}".replace(
                "'N'", "N"
            )
        wrong = (targets < 0) | (targets >= outputs[0])
        if wrong.any():
            place = first(wrong)
            return f"{at(place)} is {targets[place]}; with {outputs[0]} outputs classes go from 0 to {outputs[0] - 1}"
        return None
