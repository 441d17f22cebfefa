"""Cross entropy with the client's own classes in mind: what the losses of a class prior share.

Each turns the scores by an affine function of its own, score by score, and takes cross entropy of the result. Nothing
of the counts is sent; test samples are scored with plain cross entropy.
"""

from dataclasses import dataclass
from typing import Any

from ecgr.component import Tensor, torch
from ecgr.tasks.losses.cross_entropy import CrossEntropy


@dataclass(frozen=True, slots=True, eq=False)
class TurnedScores:
    """Cross entropy of ``scale * scores + shift``, class by class: a loss of one client."""

    scale: Tensor
    shift: Tensor

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over the samples."""
        shape = (1, -1) + (1,) * (outputs.ndim - 2)
        scale, shift = (each.to(outputs).view(shape) for each in (self.scale, self.shift))
        return torch.nn.functional.cross_entropy(outputs * scale + shift, targets.long())


class Variant:
    """What a variant of cross entropy is unless it says otherwise: judged by cross entropy, on the same targets."""

    __slots__ = ()

    @property
    def evaluation(self) -> CrossEntropy:
        """Cross entropy."""
        return CrossEntropy()

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy, for who knows no classes of a client."""
        return CrossEntropy()(outputs, targets)

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        """As cross entropy's."""
        return CrossEntropy().problem(targets, outputs)
