"""What a process needs to train clients: the data, shared and not copied, a model to train in, and the settings.

A `Problem` is the experiment with its data loaded and dealt out, cheap to hand to another process: arrays in memory
move to shared memory once, memory-mapped ones are mapped again. Each process opens a `Workspace` from it.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.core.vectors import ParamSpec
from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment
from ecgr.experiment.dealing import chosen_share, deal
from ecgr.simulation.buffers import BUFFERS, BufferRule
from ecgr.simulation.portable import pack, pack_for_workers, unpack
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
    model: nn.Module
    train_images: Tensor | MappedFile
    train_labels: Tensor
    test_images: Tensor | MappedFile
    test_labels: Tensor
    shape: Mapping[str, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    partition: Partition
    device: str = "cpu"

    @cached_property
    def buffers(self) -> BufferRule:
        """What becomes of BatchNorm's buffers."""
        return BUFFERS[self.experiment.run.buffers]

    @cached_property
    def spec(self) -> ParamSpec:
        """Where each trainable tensor lies in the flat vector."""
        return self.buffers.spec(self.model)

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


ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True, slots=True, eq=False)
class Portable:
    """A problem on its way to a worker process: arrays shared, all else as bytes, opened where an error can be told."""

    arrays: Mapping[str, Tensor | MappedFile]
    rest: bytes

    @classmethod
    def of(cls, problem: Problem) -> "Portable":
        """Move the arrays to shared memory, so that no process copies them."""
        parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
        arrays = {name: parts.pop(name) for name in ARRAYS}
        for tensor in arrays.values():
            if isinstance(tensor, Tensor):
                tensor.share_memory_()  # type: ignore[no-untyped-call]
        for name, part in parts.items():
            pack_for_workers(name, part)
        return cls(arrays, pack(parts))

    def open(self) -> "Workspace":
        """A workspace in this process."""
        parts: dict[str, Any] = {**self.arrays, **unpack(self.rest)}
        return Workspace(Problem(**parts))


class Workspace:
    """One process's place of work: opened data and one model that every job reuses."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.experiment = problem.experiment
        self.device = torch.device(problem.device)
        self.train_images, self.train_labels = _opened(problem.train_images), problem.train_labels
        self.test_images, self.test_labels = _opened(problem.test_images), problem.test_labels
        self.model = deepcopy(problem.model).to(self.device)
        self.spec, self.buffers = problem.spec, problem.buffers
        self._format = torch.contiguous_format
        if safe_in_channels_last(self.model):
            self._format = torch.channels_last
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        scale = torch.tensor([1 / (255 * s) for s in problem.std], device=self.device)
        shift = torch.tensor([m / s for m, s in zip(problem.mean, problem.std, strict=True)], device=self.device)
        self._scale, self._shift = scale.view(1, -1, 1, 1), shift.view(1, -1, 1, 1)

    def normalised(self, images: Tensor) -> Tensor:
        """A batch of uint8 images as the model wants it."""
        batch = images.to(self.device).contiguous(memory_format=self._format)
        return batch.float().mul_(self._scale).sub_(self._shift)


def _opened(images: Tensor | MappedFile) -> Tensor:
    return images.open() if isinstance(images, MappedFile) else images


def prepare(experiment: Experiment, dataset: Dataset, device: str = "cpu") -> Problem:
    """Take the experiment's share of ``dataset``, deal it out, and refuse what could not be trained."""
    dataset = chosen_share(experiment, dataset)
    problem = Problem(
        experiment=experiment,
        model=build_model(experiment, dataset.shape),
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


def build_model(experiment: Experiment, shape: Mapping[str, int]) -> nn.Module:
    """The experiment's model with the weights of its seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(experiment.run.seed, "weights"))
        return experiment.model.build(shape)


SAFE_IN_CHANNELS_LAST = (
    nn.Sequential, nn.Identity, nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d,
    nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Dropout, nn.LogSoftmax,
)  # fmt: skip


def safe_in_channels_last(model: nn.Module) -> bool:
    """Whether a model is known to stand the format that is a third to twice as fast on a CPU, to the same bits.

    A ``view`` in somebody's forward may not, and a frozen convolution followed by GroupNorm crashes torch in it.
    """
    known = all(
        type(module) in SAFE_IN_CHANNELS_LAST or type(module).__module__.startswith("ecgr.tasks.models.")
        for module in model.modules()
    )
    return known and all(parameter.requires_grad for parameter in model.parameters())


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
    model = deepcopy(problem.model).train()
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
