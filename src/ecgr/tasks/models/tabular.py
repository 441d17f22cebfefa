"""Models of tables: rows of numbers in, class scores or numbers out."""

from collections import OrderedDict
from typing import Annotated

from pydantic import Field

from ecgr.component import Count, Module, torch

Sizes = Annotated[tuple[Count, ...], Field(strict=False)]
"""Whole numbers, at least 1; a list in a config file."""


def logistic(*, features: int = 1, classes: int | None = None, outputs: int | None = None) -> Module:
    """One linear layer: logistic regression for classes, linear regression for numbers.

    >>> sum(p.numel() for p in logistic(features=13, outputs=1).parameters())
    14
    """
    return mlp(features=features, classes=classes, outputs=outputs, hidden=())


def mlp(
    *, features: int = 1, classes: int | None = None, outputs: int | None = None, hidden: Sizes = (64, 32)
) -> Module:
    """A perceptron with ReLU between layers of ``hidden`` sizes; an input of more than one axis is flattened.

    >>> [tuple(p.shape) for p in mlp(features=13, outputs=1, hidden=(8,)).parameters()]
    [(8, 13), (8,), (1, 8), (1,)]
    """
    nn = torch.nn
    layers: OrderedDict[str, Module] = OrderedDict(flatten=nn.Flatten())
    previous = features
    for i, size in enumerate(hidden, start=1):
        layers[f"fc{i}"] = nn.Linear(previous, size)
        layers[f"relu{i}"] = nn.ReLU()
        previous = size
    layers["head"] = nn.Linear(previous, classes or outputs or 1)
    return nn.Sequential(layers)
