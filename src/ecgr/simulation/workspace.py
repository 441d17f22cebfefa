"""What a process needs to train clients: the data, shared and not copied, a model to train in, and the settings.

A `Problem` is the experiment with its data loaded and dealt out, cheap to hand to another process. Each process opens a
`Workspace` from it.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.config.experiment import Experiment
from ecgr.core.vectors import ParamSpec, write_buffers
from ecgr.simulation.arrays import Held
from ecgr.simulation.feed import Feed, taken
from ecgr.simulation.portable import pack, pack_for_workers, unpack
from ecgr.tasks.losses import Loss
from ecgr.tasks.metrics import Metric
from ecgr.tasks.partition import Partition


@dataclass(frozen=True, eq=False)
class Problem:
    """An experiment with its data loaded and dealt out to clients.

    Attributes:
        model: with the weights that training starts from.
        classes: how many, where targets are classes; otherwise None.
        test_clients: the client that each test sample belongs to, -1 for none; None where that is not known.
        notes: what a person should know about the model and its loss.
    """

    experiment: Experiment
    model: nn.Module
    loss: Loss
    metrics: tuple[Metric, ...]
    train: Held
    test: Held
    classes: int | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    partition: Partition
    test_clients: NDArray[np.int64] | None = None
    device: str = "cpu"
    notes: tuple[str, ...] = ()

    @cached_property
    def spec(self) -> ParamSpec:
        """Where each trainable tensor lies in the flat vector."""
        return ParamSpec.of(self.model)

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Samples by client and class, (clients, classes); without classes in one column."""
        if self.classes is None:
            return np.array(self.partition.sizes(), dtype=np.int64)[:, None]
        labels = self.train.targets.reshape(len(self.train)).numpy().astype(np.int64)
        return self.partition.histogram(labels, self.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Portable:
    """A problem on its way to a worker process: arrays shared, all else as bytes, opened where an error can be told."""

    train: Held
    test: Held
    rest: bytes

    @classmethod
    def of(cls, problem: Problem, *, beyond: bool = False) -> "Portable":
        """Move the arrays to shared memory, so that no process copies them.

        ``beyond`` this machine there is neither its memory nor its files: mapped arrays travel, too.
        """
        parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
        train, test = parts.pop("train"), parts.pop("test")
        if beyond:
            train, test = train.open(), test.open()
        else:
            train.share()
            test.share()
        for name, part in parts.items():
            pack_for_workers(name, part)
        return cls(train, test, pack(parts))

    def open(self) -> "Workspace":
        """A workspace in this process."""
        return Workspace(Problem(train=self.train, test=self.test, **unpack(self.rest)))


class Workspace:
    """One process's place of work: opened data and one model that every job reuses."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.experiment = problem.experiment
        self.device = torch.device(problem.device)
        self.train, self.test = problem.train.open(), problem.test.open()
        self.model = deepcopy(problem.model).to(self.device)
        self.spec = problem.spec
        self._feed = self._feed_of(self.model)
        self._training_feed = self._feed_of(self.model, self.experiment.run.precision)

    def load(self, params: Tensor, buffers: Mapping[str, Tensor]) -> None:
        """Make the model the one with these parameters and buffers."""
        self.spec.write(params, self.model)
        write_buffers(buffers, self.model)

    def batch(self, samples: Held, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        """The model's outputs for some rows, and their targets."""
        return self._feed.outputs(samples.inputs, rows), taken(samples.targets, rows).to(self.device)

    def training_batch(self, samples: Held, rows: Tensor) -> tuple[Tensor, Tensor]:
        """As `batch`, in the precision that clients train with."""
        return self._training_feed.outputs(samples.inputs, rows), taken(samples.targets, rows).to(self.device)

    def teacher(self, params: Tensor, buffers: Mapping[str, Tensor]) -> Callable[[Held, Tensor], Tensor]:
        """A model that is not trained, as a function of some rows of samples: what it gives for them."""
        model = deepcopy(self.model).eval()
        self.spec.write(params, model)
        write_buffers(buffers, model)
        feed = self._feed_of(model, self.experiment.run.precision)

        def outputs(samples: Held, rows: Tensor) -> Tensor:
            with torch.no_grad():
                return feed.outputs(samples.inputs, rows)

        return outputs

    def _feed_of(self, model: nn.Module, precision: str = "float32") -> Feed:
        return Feed(model, self.problem.mean, self.problem.std, precision)
