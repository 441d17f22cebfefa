"""Losses: what a client minimises.

A loss is a frozen component, its own configuration, and a function ``(outputs, targets) -> mean over the samples``. It
may also have, and the simulator asks for them by these names:

- ``total(outputs, targets)``: the sum over the samples; by default the mean times their number;
- ``evaluation``: the loss that test samples are scored with; by default the loss itself;
- ``needs_teacher``: it is called with a third argument, the outputs of the round's global model;
- ``for_client(class_counts)``: the loss of a client with these numbers of samples by class;
- ``problem(targets, outputs)``: why it cannot take these targets from a model with outputs of this shape.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np

from ecgr.component import Fraction, NonNegative, Positive, Tensor, component, torch
from ecgr.errors import ConfigError, DataError
from ecgr.tables import Table, unknown
from ecgr.tasks.samples import first_wrong


class Loss(Protocol):
    """An entry of ``LOSSES``, or any function."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch."""


def evaluation_of(loss: Loss) -> Loss:
    """The loss that test samples are scored with."""
    own: Loss = getattr(loss, "evaluation", loss)
    return own


def total(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of a loss over the samples of a batch."""
    own: Callable[[Tensor, Tensor], Tensor] | None = getattr(loss, "total", None)
    return loss(outputs, targets) * len(targets) if own is None else own(outputs, targets)


def check_targets(loss: Loss, where: str, targets: Any, outputs: tuple[int, ...]) -> None:
    """Refuse targets that the loss cannot take from a model with ``outputs`` (without the samples' axis)."""
    own = getattr(loss, "problem", None)
    if own is not None and (found := own(targets, outputs)):
        raise DataError(f"{where}: {found}")


def aligned(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the shape of the targets and the dtype of the outputs: a model's (N, 1) is as good as (N,)."""
    outputs = outputs.reshape(targets.shape) if outputs.numel() == targets.numel() else outputs
    return outputs, targets.to(outputs.dtype)


@component
class MSE:
    """Mean squared error; targets are numbers, (N,) or (N, outputs)."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(*aligned(outputs, targets))

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        given, wanted = int(np.prod(targets.shape[1:])), int(np.prod(outputs))
        if given == wanted:
            return None
        return f"{given} targets a sample, {wanted} outputs of the model; the numbers must be equal"


@component
class BCE:
    """Binary cross entropy of logits; targets are 0 or 1, (N,) or (N, labels), or shares between."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(*aligned(outputs, targets))

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        wrong = first_wrong("targets", targets, (targets < 0) | (targets > 1))
        return f"{wrong}; bce takes 0 and 1" if wrong else MSE().problem(targets, outputs)


@component
class CrossEntropy:
    """Cross entropy; targets are classes (N,), outputs scores (N, classes), further axes after these."""

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(outputs, targets.long())

    def total(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum over the samples; of each, the mean over its further axes."""
        summed = torch.nn.functional.cross_entropy(outputs, targets.long(), reduction="sum")
        return summed if targets.ndim == 1 else summed * (len(targets) / targets.numel())

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        if targets.dtype.kind not in "biu":
            return f"targets are {targets.dtype}; cross_entropy takes classes: whole numbers from 0"
        if len(outputs) != targets.ndim or outputs[1:] != targets.shape[1:]:
            return f"targets of shape {targets.shape[1:]} a sample do not match outputs {outputs}"
        wrong = first_wrong("targets", targets, (targets < 0) | (targets >= outputs[0]))
        return f"{wrong}; with {outputs[0]} outputs classes go from 0 to {outputs[0] - 1}" if wrong else None


@dataclass(frozen=True, slots=True, eq=False)
class TurnedScores:
    """Cross entropy of ``scale * scores + shift``, class by class: a loss of one client, whose counts are not sent."""

    scale: Tensor
    shift: Tensor

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        shape = (1, -1) + (1,) * (outputs.ndim - 2)
        scale, shift = (each.to(outputs).view(shape) for each in (self.scale, self.shift))
        return torch.nn.functional.cross_entropy(outputs * scale + shift, targets.long())


class Variant:
    """Cross entropy where a client's classes are not known; test samples are scored with it, on the same targets."""

    __slots__ = ()
    evaluation: ClassVar[CrossEntropy] = CrossEntropy()

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.evaluation(outputs, targets)

    def problem(self, targets: Any, outputs: tuple[int, ...]) -> str | None:
        return self.evaluation.problem(targets, outputs)


@component
class BalancedSoftmax(Variant):
    """Cross entropy of the scores plus tau times the log of the client's class shares; tau 0 is cross entropy.

    "Balanced Meta-Softmax for Long-Tailed Visual Recognition" (Ren et al., 2020), by client.

    A class that a client lacks counts as ``floor`` of an equal share, or its score would have no gradient at all.

    >>> BalancedSoftmax(tau=0.5)
    BalancedSoftmax(tau=0.5, floor=0.05)
    """

    tau: NonNegative = 1.0
    floor: Fraction = 0.05

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        shares = class_counts.double() / class_counts.sum()
        least = max(self.floor / len(shares), 1e-12)  # a share of zero has no logarithm
        return TurnedScores(torch.ones_like(shares), self.tau * shares.clamp(min=least).log())


@component
class FedRS(Variant):
    """Cross entropy with the scores of classes that a client lacks multiplied by alpha; alpha 1 is cross entropy.

    "Federated Learning with Restricted Softmax for Label Distribution Non-IID Data" (Li and Zhan, 2021).

    ``form = "missing"`` is the paper's; ``"counts"`` the official code's, which multiplies every class by
    ``alpha + (1 - alpha) n_c / max n``.

    >>> FedRS(form="counts")
    FedRS(alpha=0.5, form='counts')
    """

    alpha: Fraction = 0.5
    form: Literal["missing", "counts"] = "missing"

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        counts = class_counts.double()
        there = (counts > 0).double() if self.form == "missing" else counts / counts.max()
        return TurnedScores(self.alpha + (1 - self.alpha) * there, torch.zeros_like(counts))


LEAST = 1e-8
"""What the count of a missing class is taken for: its margin is then a hundred times tau."""


@component
class FedLC(Variant):
    """Cross entropy with a margin ``tau n_c^(-1/4)`` subtracted from every score; tau 0 is cross entropy.

    "Federated Learning with Label Distribution Skew via Logits Calibration" (Zhang et al., 2022).

    The true class stays in the denominator. As printed, without it, the loss has no lower bound.

    >>> FedLC()
    FedLC(tau=1.0)
    """

    tau: NonNegative = 1.0

    def for_client(self, class_counts: Tensor) -> TurnedScores:
        counts = class_counts.double()
        return TurnedScores(torch.ones_like(counts), -self.tau * counts.clamp(min=LEAST) ** -0.25)


@component
class FedNTD(Variant):
    """Cross entropy, and beta times the distance to the global model's opinion of the classes that are not true.

    "Preservation of the Global Knowledge by Not-True Distillation in Federated Learning" (Lee et al., 2022).

    The distance is ``tau^2 KL(global, local)`` between softmaxes at temperature tau, the true class left out. One more
    forward pass a step; beta 0 is cross entropy and has none.

    >>> FedNTD(beta=0.5)
    FedNTD(beta=0.5, tau=1.0)
    """

    beta: NonNegative = 1.0
    tau: Positive = 1.0

    @property
    def needs_teacher(self) -> bool:
        """The global model's outputs are asked for unless they do not count."""
        return self.beta > 0

    def __call__(self, outputs: Tensor, targets: Tensor, teacher: Tensor | None = None) -> Tensor:
        hard = CrossEntropy()(outputs, targets)
        if not self.needs_teacher or teacher is None:
            return hard
        true = torch.nn.functional.one_hot(targets.long(), outputs.shape[1]).movedim(-1, 1).bool()
        local, other = (
            torch.log_softmax((each / self.tau).masked_fill(true, float("-inf")), dim=1) for each in (outputs, teacher)
        )
        distance = (other.exp() * (other - local)).masked_fill(true, 0.0).sum() / targets.numel()
        return hard + self.beta * self.tau**2 * distance


FLAT = 0.5
"""Below this share of cross entropy's gradient a person is told."""


def flatness_note(loss: Any, class_counts: Any) -> str | None:
    """What to say where clients of one class get next to no gradient from ``loss``.

    Args:
        loss: an entry of ``LOSSES``; without ``for_client`` there is nothing to say.
        class_counts: samples by client and class.
    """
    counts = np.asarray(class_counts)
    single = (counts > 0).sum(axis=1) == 1
    if getattr(loss, "for_client", None) is None or not single.any():
        return None
    first = torch.as_tensor(counts[int(single.argmax())])
    target = first.argmax().reshape(1)
    left = _gradient(loss.for_client(first), target, len(first)) / _gradient(loss.evaluation, target, len(first))
    if left >= FLAT:
        return None
    clients = int((counts.sum(axis=1) > 0).sum())
    return (
        f"{int(single.sum())} of {clients} clients hold one class, and {type(loss).__name__} leaves them"
        f" {left:.0%} of the gradient; it is meant for milder skew"
    )


def softmax_note(loss: Any, outputs: Tensor) -> str | None:
    """What to say where a model gives probabilities to a loss that takes their softmax again.

    >>> softmax_note(CrossEntropy(), torch.tensor([[-0.2, 1.2]])) is None
    True
    """
    own = evaluation_of(loss)
    takes_scores = isinstance(own, CrossEntropy | torch.nn.CrossEntropyLoss) or own is torch.nn.functional.cross_entropy
    if not takes_scores or outputs.ndim < 2 or outputs.shape[1] < 2:
        return None
    if bool((outputs < 0).any() or ((outputs.sum(dim=1) - 1).abs() >= 1e-4).any()):
        return None
    return (
        "the model's outputs are probabilities (each sample's sum to 1), and cross_entropy expects logits;"
        " leave the softmax out"
    )


def _gradient(loss: Any, target: Tensor, classes: int) -> float:
    """The length of a loss's gradient at equal scores."""
    scores = torch.zeros(1, classes, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(scores, target), scores)
    return float(gradient.norm())


LOSSES: Table[Loss] = Table(
    "loss",
    "losses",
    {
        "cross_entropy": CrossEntropy,
        "bce": BCE,
        "mse": MSE,
        "balanced_softmax": BalancedSoftmax,
        "fedrs": FedRS,
        "fedlc": FedLC,
        "fedntd": FedNTD,
    },
)


def as_loss(given: Any) -> Loss:
    """A loss from its name, itself, or any function ``(outputs, targets) -> scalar``.

    >>> as_loss("bce")
    BCE()
    """
    if isinstance(given, str):
        if given not in LOSSES:
            raise ConfigError(unknown("loss", given, LOSSES, kind="loss"))
        return LOSSES[given]()
    if isinstance(given, type):
        return as_loss(given())
    if not callable(given):
        raise ConfigError(f"loss: {type(given).__name__} cannot be called; give a loss, its name or a function")
    return cast("Loss", given)
