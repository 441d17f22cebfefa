"""Models: functions that build a ``torch.nn.Module`` for data of a given shape.

Keyword arguments that a data set's shape names (channels, classes, features, …) are filled from it; the others are the
model's configuration. Weights come from torch's global generator, as everywhere in torch; whoever builds a model seeds
and restores it.

Models that need classes of their own have them in `ecgr.tasks.modules`.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import gcd
from typing import Annotated, Literal

from pydantic import Field

from ecgr.component import Count, Module, torch
from ecgr.errors import ConfigError
from ecgr.tables import Table

Norm = Literal["batch", "group"]
GROUPS = 32  # Wu and He's number of groups; the greatest common divisor where it does not divide the channels


def norm_of(kind: Norm, channels: int) -> Module:
    """BatchNorm (running averages are buffers), or GroupNorm."""
    return torch.nn.BatchNorm2d(channels) if kind == "batch" else torch.nn.GroupNorm(gcd(GROUPS, channels), channels)


def lenet(*, channels: int = 1, classes: int = 10) -> Module:
    """LeNet-5 with ReLU and max-pooling for 28x28 images.

    Larger ones are pooled to that grid's 5x5 before the dense layers.

    >>> sum(p.numel() for p in lenet().parameters())
    61706
    """
    from ecgr.tasks.modules import FitToGrid  # loads torch

    nn = torch.nn
    # ReLU after the pool: the same numbers and gradients to the bit, on a quarter of the values.
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 6, kernel_size=5, padding=2),
            pool1=nn.MaxPool2d(2),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(6, 16, kernel_size=5),
            pool2=nn.MaxPool2d(2),
            relu2=nn.ReLU(),
            fit=FitToGrid(5),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * 5 * 5, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, classes),
        )
    )


def cnn(
    *, channels: int = 3, classes: int = 10, width: Annotated[float, Field(gt=0, le=8)] = 1.0, norm: Norm = "batch"
) -> Module:
    """The paper's CNN for 32x32 images.

    A stem of 32, blocks of [64], [128, 128], [256, 256] channels with BatchNorm, a linear layer, log-softmax.

    ``width`` multiplies every number of channels; ``norm = "group"`` has GroupNorm in BatchNorm's place.

    >>> sum(p.numel() for p in cnn().parameters())
    1167872
    """
    from ecgr.tasks.modules import FitToGrid  # loads torch

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
        convolution = nn.Conv2d(previous, size, kernel_size=3, padding=1, bias=False)
        layers += [convolution, norm_of(norm, size), nn.ReLU()]
        previous = size
    # The last ReLU after the pool: the same numbers and gradients to the bit, on a quarter of the values.
    return nn.Sequential(*layers[:-1], nn.MaxPool2d(2), layers[-1])


def resnet18(*, channels: int = 3, classes: int = 1000, norm: Norm = "batch") -> Module:
    """ResNet-18 (He et al., 2016), random weights; its state dict has torchvision's names and shapes.

    ``norm = "group"`` has GroupNorm in BatchNorm's place, under the same names.

    >>> sum(p.numel() for p in resnet18().parameters())
    11689512
    """
    from ecgr.tasks.modules import ResNet18  # loads torch

    return ResNet18(channels, classes, norm)


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


def transformer(
    *,
    vocabulary: int = 65,
    length: int = 80,
    classes: int | None = None,
    outputs: int | None = None,
    width: Count = 64,
    heads: Count = 4,
    layers: Annotated[int, Field(ge=1, le=48)] = 2,
    pool: Literal["last", "mean"] = "last",
) -> Module:
    """A small pre-norm transformer (Vaswani et al., 2017): one linear layer on the pooled text.

    ``pool = "last"`` scores classes from the last token, as next-token prediction wants it; ``"mean"`` from the mean of
    all. Inputs are tokens (N, at most ``length``), or a dict of ``tokens`` and ``mask``, true where a token counts.

    >>> sum(p.numel() for p in transformer(classes=65, width=16, heads=2, layers=1).parameters())
    6737
    """
    if width % heads:
        raise ConfigError(f"model.heads: {heads} heads cannot share a width of {width}; give a divisor of model.width")
    from ecgr.tasks.modules import Transformer  # loads torch

    return Transformer(vocabulary, length, classes or outputs or 1, width, heads, layers, pool)


MODELS: Table[Module] = Table(
    "model",
    "models",
    {"lenet": lenet, "cnn": cnn, "resnet18": resnet18, "logistic": logistic, "mlp": mlp, "transformer": transformer},
)
