"""Losses by name: what a client minimises."""

from inspect import isbuiltin, isfunction
from typing import Any, cast

from ecgr.errors import ConfigError
from ecgr.tables import Table, unknown
from ecgr.tasks.losses.balanced_softmax import BalancedSoftmax
from ecgr.tasks.losses.bce import BCE
from ecgr.tasks.losses.cross_entropy import CrossEntropy
from ecgr.tasks.losses.fedlc import FedLC
from ecgr.tasks.losses.fedntd import FedNTD
from ecgr.tasks.losses.fedrs import FedRS
from ecgr.tasks.losses.flatness import flatness_note, softmax_note
from ecgr.tasks.losses.mse import MSE
from ecgr.tasks.losses.protocol import CallableLoss, Loss, check_targets, evaluation_of, total

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
    return CallableLoss(given) if isfunction(given) or isbuiltin(given) else cast("Loss", given)


__all__ = [
    "BCE",
    "LOSSES",
    "MSE",
    "BalancedSoftmax",
    "CallableLoss",
    "CrossEntropy",
    "FedLC",
    "FedNTD",
    "FedRS",
    "Loss",
    "as_loss",
    "check_targets",
    "evaluation_of",
    "flatness_note",
    "softmax_note",
    "total",
]
