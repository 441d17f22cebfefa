"""Which layer normalises the channels of an image model: BatchNorm, or GroupNorm, which keeps nothing of the data."""

from collections.abc import Callable, Mapping
from math import gcd
from typing import Literal

from ecgr.component import Module, torch

Norm = Literal["batch", "group"]
GROUPS = 32  # Wu and He's number of groups


def batch_norm(channels: int) -> Module:
    """BatchNorm: statistics of a batch in training, running averages (buffers) in evaluation."""
    return torch.nn.BatchNorm2d(channels)


def group_norm(channels: int) -> Module:
    """GroupNorm of 32 groups, or of the greatest common divisor where 32 does not divide the channels."""
    return torch.nn.GroupNorm(gcd(GROUPS, channels), channels)


NORMS: Mapping[Norm, Callable[[int], Module]] = {"batch": batch_norm, "group": group_norm}
