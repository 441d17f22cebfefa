"""Binary cross entropy: yes or no, once or for several labels a sample."""

from typing import Any

from ecgr.component import Tensor, component, torch
from ecgr.tasks.losses.protocol import at, first, same_shape_problem, shaped


@component
class BCE:
    """Binary cross entropy of logits; targets are 0 or 1, (N,) or (N, labels), or shares between."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over samples and labels."""
        logits = shaped(outputs, targets)
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        """Targets must lie between 0 and 1, one for each output."""
        wrong = (targets < 0) | (targets > 1)
        if wrong.any():
            place = first(wrong)
            return f"{at(place)} is {targets[place]}; bce takes 0 and 1"
        return same_shape_problem(targets, outputs)
