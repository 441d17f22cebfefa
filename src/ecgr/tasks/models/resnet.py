"""ResNet-18: "Deep Residual Learning for Image Recognition" (He et al., 2016), random weights."""

from ecgr.component import Module


def resnet18(*, channels: int = 3, classes: int = 1000) -> Module:
    """ResNet-18 whose state dict has torchvision's names and shapes.

    >>> sum(p.numel() for p in resnet18().parameters())
    11689512
    """
    from ecgr.tasks.models.residual import ResNet18  # loads torch

    return ResNet18(channels, classes)
