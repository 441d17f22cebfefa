"""What a process needs to train clients: the data, shared and not copied, a model to train in, and the settings.

A `Problem` is the experiment with its data loaded and dealt out, cheap to hand to another process: arrays in memory
move to shared memory once, memory-mapped ones are mapped again. Each process opens a `Workspace` from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.core.vectors import ParamSpec
from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment
from ecgr.experiment.dealing import chosen_share, deal
from ecgr.streams import torch_seed
from ecgr.tasks.data import Dataset
from ecgr.tasks.partitioners import Partition


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A memory-mapped array by the place of its bytes."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def open(self) -> Tensor:
        """Map it into this process; copy-on-write, so that the file can never change."""
        return torch.from_numpy(np.memmap(self.path, self.dtype, mode="c", offset=self.offset, shape=self.shape))


@dataclass(frozen=True, eq=False)
class Problem:
    """An experiment with its data loaded and dealt out to clients."""

    experiment: Experiment
    train_images: Tensor | MappedFile
    train_labels: Tensor
    test_images: Tensor | MappedFile
    test_labels: Tensor
    shape: Mapping[str, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    partition: Partition
    device: str = "cpu"

    @property
    def classes(self) -> int:
        """Classes of images."""
        return self.shape["classes"]

    @cached_property
    def label_shares(self) -> NDArray[np.float64]:
        """How each client's samples are spread over the classes, (clients, classes); rows sum to one, or to zero."""
        counts = self.partition.histogram(self.train_labels.numpy(), self.classes).astype(np.float64)
        shares: NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
        return shares

    def share_memory(self) -> None:
        """Move the arrays to shared memory, so that handing the problem to a process copies nothing."""
        for tensor in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            if isinstance(tensor, Tensor):
                tensor.share_memory_()  # type: ignore[no-untyped-call]


class Workspace:
    """One process's place of work: opened data and one model that every job reuses."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.experiment = problem.experiment
        self.device = torch.device(problem.device)
        self.train_images, self.train_labels = _opened(problem.train_images), problem.train_labels
        self.test_images, self.test_labels = _opened(problem.test_images), problem.test_labels
        # channels-last: a third to twice as fast on a CPU for every model here, with the same arithmetic per value
        self.model = build_model(problem).to(self.device)
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        as_weights = problem.experiment.run.buffers == "as_weights"
        self.spec = ParamSpec.of(self.model, buffers_as_weights=as_weights)
        self.statistics_follow = self.spec != ParamSpec.of(self.model)
        scale = torch.tensor([1 / (255 * s) for s in problem.std], device=self.device)
        shift = torch.tensor([m / s for m, s in zip(problem.mean, problem.std, strict=True)], device=self.device)
        self._scale, self._shift = scale.view(1, -1, 1, 1), shift.view(1, -1, 1, 1)

    def normalised(self, images: Tensor) -> Tensor:
        """A batch of uint8 images as the model wants it."""
        batch = images.to(self.device).contiguous(memory_format=torch.channels_last)
        return batch.float().mul_(self._scale).sub_(self._shift)


def _opened(images: Tensor | MappedFile) -> Tensor:
    return images.open() if isinstance(images, MappedFile) else images


def prepare(experiment: Experiment, dataset: Dataset, device: str = "cpu") -> Problem:
    """Take the experiment's share of ``dataset``, deal it out, and refuse what could not be trained."""
    dataset = chosen_share(experiment, dataset)
    problem = Problem(
        experiment=experiment,
        train_images=_handle(dataset.train.inputs),
        train_labels=torch.from_numpy(dataset.train.targets.copy()),
        test_images=_handle(dataset.test.inputs),
        test_labels=torch.from_numpy(dataset.test.targets.copy()),
        shape=dataset.shape,
        mean=dataset.mean,
        std=dataset.std,
        partition=deal(experiment, dataset),
        device=_checked_device(device),
    )
    _check_single_sample_batches(problem)
    return problem


def build_model(problem: Problem) -> nn.Module:
    """The experiment's model with the weights of its seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(problem.experiment.run.seed, "weights"))
        return problem.experiment.model.build(problem.shape)


def _handle(images: NDArray[np.uint8]) -> Tensor | MappedFile:
    if isinstance(images, np.memmap) and images.filename is not None and images.flags.c_contiguous:
        return MappedFile(Path(images.filename), str(images.dtype), images.shape, images.offset)
    return torch.from_numpy(np.require(images, requirements=["C", "W"]))


def _checked_device(device: str) -> str:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {device!r} cannot be used here ({reason}); `cpu` always can") from None
    return device


def _check_single_sample_batches(problem: Problem) -> None:
    """A last batch of one sample breaks BatchNorm where one value per channel is left; find out before training."""
    federation = problem.experiment.federation
    sizes = problem.partition.sizes()
    lonely = [
        client for client, n in enumerate(sizes) if 1 in batch_sizes(n, federation.batch_size, federation.last_batch)
    ]
    if not lonely:
        return
    model = build_model(problem).train()
    shape = problem.test_images.shape
    try:
        model(torch.zeros(1, *shape[1:]))
    except ValueError as error:
        advice = (
            'set federation.last_batch = "merge" or "drop"' if sizes[lonely[0]] > 1 else "raise partition.min_batches"
        )
        raise ConfigError(
            f"federation.batch_size: client {lonely[0]} ({sizes[lonely[0]]} samples) would end on a batch of one,"
            f" which this model's BatchNorm cannot take ({error}); {advice}"
        ) from None


def batch_sizes(samples: int, batch_size: int, last_batch: str) -> list[int]:
    """The sizes of an epoch's batches.

    A last batch of a single sample is a step like any other ("keep"), joins the batch before it ("merge") or is left
    out ("drop"); longer ones are always steps, and so is the only batch of a client.

    >>> [batch_sizes(9, 4, rule) for rule in ("keep", "merge", "drop")]
    [[4, 4, 1], [4, 5], [4, 4]]
    >>> batch_sizes(6, 4, "merge")
    [4, 2]
    """
    whole, rest = divmod(samples, batch_size)
    sizes = [batch_size] * whole + ([rest] if rest else [])
    if len(sizes) > 1 and sizes[-1] == 1 and last_batch != "keep":
        sizes.pop()
        if last_batch == "merge":
            sizes[-1] += 1
    return sizes
