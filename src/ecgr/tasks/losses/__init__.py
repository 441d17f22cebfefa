"""Losses by name: what a client minimises."""

from collections.abc import Callable, Mapping

from ecgr.tasks.losses.bce import BCE
from ecgr.tasks.losses.cross_entropy import CrossEntropy
from ecgr.tasks.losses.mse import MSE
from ecgr.tasks.losses.protocol import Loss, check_targets, evaluation_of, total

LOSSES: Mapping[str, Callable[..., Loss]] = {"cross_entropy": CrossEntropy, "bce": BCE, "mse": MSE}

__all__ = ["BCE", "LOSSES", "MSE", "CrossEntropy", "Loss", "check_targets", "evaluation_of", "total"]
