"""The paper's CNN for 32x32 images: 1,167,872 parameters for three channels and ten classes."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ecgr.component import Module, torch
from ecgr.tasks.models.normalisation import NORMS, Norm


def cnn(
    *, channels: int = 3, classes: int = 10, width: Annotated[float, Field(gt=0, le=8)] = 1.0, norm: Norm = "batch"
) -> Module:
    """A stem of 32, blocks of [64], [128, 128], [256, 256] channels with BatchNorm, a linear layer, log-softmax.

    ``width`` multiplies every number of channels; ``norm = "group"`` has GroupNorm in BatchNorm's place.

    >>> sum(p.numel() for p in cnn().parameters())
    1167872
    """
    from ecgr.tasks.models.fit import FitToGrid  # loads torch

    nn = torch.nn
    stem, *blocks = ([max(1, round(width * n)) for n in block] for block in ([32], [64], [128, 128], [256, 256]))
    layers: OrderedDict[str, Module] = OrderedDict(
        stem=nn.Sequential(nn.Conv2d(channels, stem[0], kernel_size=3, padding=1), nn.ReLU())
    )
    previous = stem[0]
    for i, block in enumerate(blocks, start=1):
        layers[f"block{i}"] = _block(previous, block, norm)
        previous = block[-1]
    layers["fit"] = FitToGrid(4)
    layers["flatten"] = nn.Flatten()
    layers["linear"] = nn.Linear(previous * 4 * 4, classes, bias=False)
    layers["log_softmax"] = nn.LogSoftmax(dim=1)
    return nn.Sequential(layers)


def _block(previous: int, sizes: Sequence[int], norm: Norm) -> Module:
    """3x3 convolutions without bias, each with its norm and ReLU, then a max-pool."""
    nn = torch.nn
    layers: list[Module] = []
    for size in sizes:
        layers += [
            nn.Conv2d(previous, size, kernel_size=3, padding=1, bias=False),
            NORMS[norm](size),
            nn.ReLU(),
        ]
        previous = size
    # The last ReLU after the pool: the same numbers and gradients to the bit, on a quarter of the values.
    return nn.Sequential(*layers[:-1], nn.MaxPool2d(2), layers[-1])
