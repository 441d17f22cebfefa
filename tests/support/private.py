"""A model without buffers, for rounds under differential privacy."""

from torch import nn


def linear(*, channels: int = 1, classes: int = 3) -> nn.Module:
    """One layer on 16 means of pixels."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * channels, classes))
