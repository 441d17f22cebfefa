"""LeNet-5 with ReLU and max-pooling: 61,706 parameters for one channel of 28x28 and ten classes."""

from collections import OrderedDict

from ecgr.component import Module, torch


def lenet(*, channels: int = 1, classes: int = 10) -> Module:
    """LeNet for 28x28 images (larger ones are pooled to that grid's 5x5 before the dense layers).

    >>> sum(p.numel() for p in lenet().parameters())
    61706
    """
    from ecgr.tasks.models.fit import FitToGrid  # loads torch

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
