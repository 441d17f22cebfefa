"""Problems small enough to compute by hand, and engines that look at or spoil what passes through them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.algorithms import ALGORITHMS, Upload
from ecgr.config.experiment import Experiment
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Problem
from ecgr.tasks.data import Dataset, image_dataset
from ecgr.tasks.models import MODELS
from ecgr.tasks.partition import Partition
from ecgr.tasks.samples import Samples
from ecgr.tasks.task import Task

TRAINED = [name for name, entry in ALGORITHMS.items() if getattr(entry, "trains", True)]
"""The algorithms whose clients take steps."""


def two_parameters(*, channels: int = 1, classes: int = 2) -> nn.Module:
    """Scores (w0 x, w1 x) of a one-pixel image x; both weights start at zero."""
    linear = nn.Linear(channels, classes, bias=False)
    nn.init.zeros_(linear.weight)
    return nn.Sequential(nn.Flatten(), linear)


def small_net(*, channels: int = 1, classes: int = 3) -> nn.Module:
    """A convolution with BatchNorm and a linear layer: every kind of tensor, a few dozen numbers."""
    return nn.Sequential(
        nn.Conv2d(channels, 3, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(12, classes),
    )


def offer(monkeypatch: pytest.MonkeyPatch, **models: Callable[..., nn.Module]) -> None:
    """Put models into the table for the length of a test."""
    for name, build in models.items():
        monkeypatch.setitem(MODELS, name, build)  # read-only to everybody but tests


def dataset(
    pixels: NDArray[np.uint8], labels: Sequence[int], classes: int, *, mean: float = 0.0, std: float = 1.0
) -> Dataset:
    """The same images to train and to test on; with mean 0 and std 1 a pixel of 255 is exactly one."""
    split = Samples(pixels, np.asarray(labels, dtype=np.int64))
    names = tuple(str(i) for i in range(classes))
    return image_dataset(split, split, names, mean=(mean,) * pixels.shape[1], std=(std,) * pixels.shape[1])


def one_pixel(values: Sequence[int], labels: Sequence[int]) -> Dataset:
    """One-pixel images for `two_parameters`."""
    return dataset(np.array(values, dtype=np.uint8).reshape(-1, 1, 1, 1), labels, classes=2)


def blobs(samples: int, *, classes: int = 3, side: int = 6, seed: int = 0) -> Dataset:
    """Random images whose brightness depends on the class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % classes
    pixels = rng.integers(0, 160, size=(samples, 1, side, side)) + (labels * 30)[:, None, None, None]
    return dataset(pixels.astype(np.uint8), labels.tolist(), classes, mean=0.4, std=0.3)


def problem(data: Dataset, parts: Sequence[Sequence[int]], **sections: Mapping[str, Any]) -> Problem:
    """A problem with a given partition; keyword arguments are config sections."""
    raw: dict[str, dict[str, Any]] = {name: dict(values) for name, values in sections.items()}
    raw["partition"] = {"name": "iid", "clients": len(parts), "min_batches": 0, **raw.get("partition", {})}
    prepared = prepare(Experiment.from_dict(raw), data)
    return replace(prepared, partition=Partition.of([list(part) for part in parts]))


def tiny_task(samples: int = 40, **changes: Any) -> Task:
    """Points in the plane on either side of a line, for a linear model of two clients."""
    inputs = np.random.default_rng(0).normal(size=(samples, 2)).astype(np.float32)
    split = (inputs, (inputs[:, 0] > 0).astype(np.int64))
    return Task(**{"model": lambda: nn.Linear(2, 2), "train": split, "test": split, "clients": 2, **changes})


def four_clients(algorithm: str = "fedavg", **sections: Mapping[str, Any]) -> Problem:
    """Clients of 10, 4, 7 and 3 images in batches of four, so 3, 1, 2 and 1 steps, on `small_net`."""
    settings: dict[str, Mapping[str, Any]] = {
        "model": {"name": small_net},
        "algorithm": {"name": algorithm},
        "regulator": {"name": "ecgr"},
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "federation": {"rounds": 3, "batch_size": 4},
        **sections,
    }
    return problem(blobs(24), [range(10), range(10, 14), range(14, 21), range(21, 24)], **settings)


class Watching:
    """A serial engine that hands every answer of a client to ``look`` before passing on what that returns."""

    def __init__(self, problem: Problem, look: Callable[[Upload], Upload | Any]) -> None:
        self._inner = SerialEngine(problem)
        self._look = look

    def map(self, jobs: Sequence[Any]) -> Iterator[Any]:
        answers: Iterator[Any] = self._inner.map(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(job, ClientJob):
                result, state = answer
                seen = self._look(result)
                yield (seen, state) if isinstance(seen, Upload) else seen
            else:
                yield answer


def spoiled(result: Upload, value: float = float("nan"), name: str = "update") -> Upload:
    """The same answer with one number of one uploaded tensor replaced."""
    payload = dict(result.payload)
    tensor = payload[name].clone()
    tensor.view(-1)[0] = value
    payload[name] = tensor
    return replace(result, payload=payload)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, NaN and the sign of zero included."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.detach().contiguous().numpy().tobytes() == b.detach().contiguous().numpy().tobytes()


def flat(*values: float) -> Tensor:
    """A float32 vector."""
    return torch.tensor(values, dtype=torch.float32)
