"""ResNet-18: "Deep Residual Learning for Image Recognition" (He et al., 2016), random weights."""

from ecgr.component import Module
from ecgr.tasks.models.normalisation import Norm


def resnet18(*, channels: int = 3, classes: int = 1000, norm: Norm = "batch") -> Module:
    """ResNet-18 whose state dict has torchvision's names and shapes.

    ``norm = "group"`` has GroupNorm in BatchNorm's place, under the same names.

    >>> sum(p.numel() for p in resnet18().parameters())
    11689512
    """
    from ecgr.tasks.models.residual import ResNet18  # loads torch

    return ResNet18(channels, classes, norm)
