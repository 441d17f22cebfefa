"""What a process needs to train clients: the data, shared and not copied, a model to train, and the settings.

A `Problem` is an experiment with its data loaded and partitioned; it is cheap to send to another process. Each process
opens a `Workspace` from it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.algorithms.base import prefixed
from ecgr.component import State
from ecgr.config.experiment import OWN, Experiment
from ecgr.core.vectors import ParamSpec, read_buffers, write_buffers
from ecgr.simulation.pickling import pack, pack_for_workers, unpack
from ecgr.tasks.losses import Loss
from ecgr.tasks.metrics import Metric
from ecgr.tasks.partition import Partition
from ecgr.tasks.samples import Items, Moment, Samples, map_arrays, named_arrays

if TYPE_CHECKING:
    from ecgr.simulation.frozen import Frozen

WIDER = {"u2": np.int32, "u4": np.int64, "u8": np.int64, "f16": np.float64}
"""Dtypes that torch cannot compute with, and those that take their place."""
LOCAL = "local/"
"""How the tensors that never leave a client are told apart from its algorithm's, in one state."""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A memory-mapped array: where its bytes are."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def open(self) -> Tensor:
        """Map it into this process; copy-on-write, so that the file can never change."""
        return torch.from_numpy(np.memmap(self.path, self.dtype, mode="c", offset=self.offset, shape=self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Samples as tensors or mapped files, in the structure that their inputs have."""

    inputs: Any
    targets: Tensor

    @classmethod
    def of(cls, samples: Samples) -> "Held":
        """Copies the targets, and of the inputs only what torch cannot use as it is."""
        return cls(map_arrays(_handle, samples.inputs), torch.from_numpy(_native(samples.targets).copy()))

    def __len__(self) -> int:
        return len(self.targets)

    def open(self) -> "Held":
        """Map every file into this process."""
        return Held(
            map_arrays(lambda held: held.open() if isinstance(held, MappedFile) else held, self.inputs), self.targets
        )

    def share(self) -> None:
        """Move tensors to shared memory, so that handing them to a process copies nothing."""
        for _, tensor in (*named_arrays(self.inputs), ("targets", self.targets)):
            if isinstance(tensor, Tensor):
                tensor.share_memory_()  # type: ignore[no-untyped-call]


def _handle(array: NDArray[Any] | Items) -> Tensor | MappedFile | Items:
    if isinstance(array, Items):
        return array
    if (
        isinstance(array, np.memmap)
        and array.filename is not None
        and array.flags.c_contiguous
        and array.dtype.isnative
        and array.dtype.str[1:] not in WIDER
    ):
        whole = array  # a part of a mapped array says the offset of the whole
        while isinstance(whole.base, np.memmap):
            whole = whole.base
        offset = whole.offset + array.ctypes.data - whole.ctypes.data
        return MappedFile(Path(array.filename), str(array.dtype), array.shape, offset)
    return torch.from_numpy(np.require(_native(array), requirements=["C", "W"]))


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """In this machine's byte order and a dtype that torch computes with."""
    wider = WIDER.get(array.dtype.str[1:])
    return array.astype(wider or array.dtype.newbyteorder("="), copy=False)


# From rows to outputs


Forward = Callable[..., Any]


def in_bf16(model: nn.Module) -> Forward:
    """The model's forward pass with products in bfloat16; its backward pass follows."""
    device = next(model.parameters()).device.type

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = model(*args, **kwargs)
        return outputs.float() if isinstance(outputs, Tensor) and outputs.dtype == torch.bfloat16 else outputs

    return forward


PRECISIONS: Mapping[str, Callable[[nn.Module], Forward]] = {"float32": lambda model: model, "bf16": in_bf16}
"""By name: what makes a model's forward pass of a model."""

SAFE_IN_CHANNELS_LAST = (
    nn.Sequential, nn.Identity, nn.Conv2d, nn.BatchNorm2d, nn.Linear, nn.ReLU, nn.MaxPool2d, nn.AvgPool2d,
    nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, nn.Dropout, nn.LogSoftmax,
)  # fmt: skip


class Feed:
    """Feeds a model with rows of arrays.

    Floats come in the model's precision and whole numbers as int64. With ``mean`` and ``std``, inputs are uint8 images,
    normalised here by ``(x / 255 - mean) / std``, batch by batch. ``precision`` is that of the forward pass.
    """

    def __init__(
        self, model: nn.Module, mean: tuple[float, ...], std: tuple[float, ...], precision: str = "float32"
    ) -> None:
        own = next(model.parameters())
        self.device, self._forward = own.device, PRECISIONS[precision](model)
        self._dtype = own.dtype
        self._images = bool(mean)
        self._format = torch.contiguous_format
        if self._images:
            scale = torch.tensor([1 / (255 * s) for s in std], device=self.device)
            shift = torch.tensor([m / s for m, s in zip(mean, std, strict=True)], device=self.device)
            self._scale, self._shift = scale.view(1, -1, 1, 1), shift.view(1, -1, 1, 1)
            if safe_in_channels_last(model):
                self._format = torch.channels_last
                model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def outputs(self, inputs: Any, rows: Tensor | slice, moment: Moment = None) -> Tensor:
        """The model's outputs for some rows of ``inputs``: one array, a tuple or a dict of them."""
        given = self.given(inputs, rows, moment)
        if isinstance(given, dict):
            found = self._forward(**given)
        else:
            found = self._forward(*given) if isinstance(given, tuple) else self._forward(given)
        if not isinstance(found, Tensor):
            raise TypeError(f"it gives a {type(found).__name__}, not a tensor")
        return found

    def given(self, inputs: Any, rows: Tensor | slice, moment: Moment = None) -> Any:
        """What the model is fed with for some rows; ``moment`` is when items are read that are read anew."""
        if isinstance(inputs, Items):
            read = inputs.read(inputs.numbers[rows if isinstance(rows, slice) else rows.numpy()], moment)
            return map_arrays(lambda array: self._prepared(torch.from_numpy(_native(array))), read)
        return map_arrays(lambda array: self._prepared(taken(array, rows)), inputs)

    def _prepared(self, batch: Tensor) -> Tensor:
        batch = batch.to(self.device)
        if self._images:
            return batch.contiguous(memory_format=self._format).float().mul_(self._scale).sub_(self._shift)
        if batch.is_floating_point():
            return batch.to(self._dtype)
        return batch if batch.dtype == torch.bool else batch.long()


def taken(array: Tensor, rows: Tensor | slice) -> Tensor:
    """``array[rows]``, in memory of its own: on some processors the bits of a product depend on where operands lie."""
    return array[rows].clone() if isinstance(rows, slice) else array.index_select(0, rows)


def safe_in_channels_last(model: nn.Module) -> bool:
    """Whether a model works in channels-last format: a third to twice as fast on a CPU, to the same bits.

    A ``view`` in a user's forward may fail, and a frozen convolution followed by GroupNorm crashes torch in it.
    """
    known = all(
        type(module) in SAFE_IN_CHANNELS_LAST or type(module).__module__ == "ecgr.tasks.modules"
        for module in model.modules()
    )
    return known and all(parameter.requires_grad for parameter in model.parameters())


# The problem, and where it is worked on


@dataclass(frozen=True, eq=False)
class Problem:
    """An experiment with its data loaded and partitioned over clients.

    Attributes:
        model: with the weights that training starts from.
        classes: how many, where targets are classes; otherwise None.
        test_clients: the client that each test sample belongs to, -1 for none; None where that is not known.
        notes: what a person should know about the model and its loss.
        spent: the file in which a federation counts its rounds under differential privacy.
        frozen: what of the model is not trained, where ``model.trainable`` says so; ``model`` may then be the head, and
            the samples' inputs its features.
        server: labelled samples that the server has; no worker needs them.
    """

    experiment: Experiment
    model: nn.Module
    loss: Loss
    metrics: tuple[Metric, ...]
    train: Held
    test: Held
    partition: Partition
    classes: int | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    test_clients: NDArray[np.int64] | None = None
    device: str = "cpu"
    notes: tuple[str, ...] = ()
    spent: Path | None = None
    frozen: "Frozen | None" = None
    server: Held | None = None

    @property
    def trains(self) -> bool:
        """Whether clients take steps at all."""
        return getattr(self.experiment.algorithm, "trains", True)

    @cached_property
    def able(self) -> list[int]:
        """The clients that have samples."""
        return [client for client, size in enumerate(self.partition.sizes()) if size]

    def feed(self, model: nn.Module, precision: str = "float32") -> Feed:
        """Feeds a model of this kind with the problem's samples."""
        return Feed(model, self.mean, self.std, precision)

    def set_training(self, model: nn.Module) -> None:
        """Put a model in training mode, all but what is frozen."""
        model.train() if self.frozen is None else self.frozen.train(model)

    @cached_property
    def spec(self) -> ParamSpec:
        """Where each trainable tensor that is sent lies in the flat vector."""
        return ParamSpec.of(self.model, without=self.local)

    @cached_property
    def local(self) -> dict[str, Tensor]:
        """The parameters and buffers that never leave a client, as those begin who have not trained yet."""
        part = self.experiment.parts.get("local")
        names = part.names(self.model) if part is not None else ()
        tensors = named_tensors(self.model) if names else {}
        return {name: tensors[name].detach().clone() for name in names}

    @cached_property
    def own_rows(self) -> dict[int, Tensor]:
        """The test samples of each client that has any, where clients are scored on their own."""
        owners = self.test_clients if self.experiment.data.score == OWN else None
        known = [] if owners is None else np.unique(owners[owners >= 0]).tolist()
        return {client: torch.from_numpy(np.flatnonzero(owners == client)) for client in known}

    def first_state(self, params: Tensor) -> State:
        """What a client remembers before it first takes part; ``params`` is the global model then."""
        return {**self.experiment.algorithm.init_client(params), **prefixed(LOCAL, self.local)}

    def shared_buffers(self, model: nn.Module) -> dict[str, Tensor]:
        """Copies of the buffers that are sent: those that training may change, and that no client keeps for itself."""
        found = read_buffers(model) if self.frozen is None else self.frozen.moving(read_buffers(model))
        return {name: buffer for name, buffer in found.items() if name not in self.local}

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Samples by client and class, (clients, classes); without classes in one column."""
        if self.classes is None:
            return np.array(self.partition.sizes(), dtype=np.int64)[:, None]
        labels = self.train.targets.reshape(len(self.train)).numpy().astype(np.int64)
        return self.partition.histogram(labels, self.classes)

    def loss_of(self, client: int) -> Any:
        """What a client minimises: the loss, or what that makes of the client's samples by class."""
        make = getattr(self.loss, "for_client", None)
        return self.loss if make is None else make(torch.from_numpy(self.class_counts[client]))


def portable(problem: Problem, *, remote: bool = False) -> Callable[[], "Workspace"]:
    """What opens a problem's workspace in a worker process; its arrays are in shared memory, so that none copies them.

    A ``remote`` machine has neither this one's memory nor its files: mapped arrays are sent, too.
    """
    parts = {field.name: getattr(problem, field.name) for field in fields(problem)}
    train, test, parts["server"] = parts.pop("train"), parts.pop("test"), None
    parts["frozen"] = problem.frozen and replace(problem.frozen, whole=None)
    if remote:
        train, test = train.open(), test.open()
    else:
        train.share()
        test.share()
    for name, part in parts.items():
        pack_for_workers(name, part)
    return partial(_opened, train, test, pack(parts))


def _opened(train: Held, test: Held, rest: bytes) -> "Workspace":
    return Workspace(Problem(train=train, test=test, **unpack(rest)))


class Workspace:
    """Opened data and one model, which every job of a process uses."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.experiment = problem.experiment
        self.device = torch.device(problem.device)
        self.train, self.test = problem.train.open(), problem.test.open()
        self.model = deepcopy(problem.model).to(self.device)
        self.spec = problem.spec
        self._feed = problem.feed(self.model)
        self._training_feed = problem.feed(self.model, self.experiment.run.precision)
        self.moment: Moment = None
        """Seed, round, client and step of what is trained."""

    def load(self, params: Tensor, buffers: Mapping[str, Tensor], state: State | None = None) -> None:
        """Make the model that of a client: what is global, and of its ``state`` what never leaves it."""
        self.spec.write(params, self.model)
        write_buffers(buffers, self.model)
        if local := self.problem.local:
            tensors = named_tensors(self.model)
            with torch.no_grad():
                for name, initial in local.items():
                    tensors[name].copy_((state or {}).get(LOCAL + name, initial))

    def local_state(self) -> State:
        """What of the model never leaves its client, as a part of the client's state."""
        tensors = named_tensors(self.model) if self.problem.local else {}
        return prefixed(LOCAL, {name: tensors[name].detach().cpu().clone() for name in self.problem.local})

    def batch(self, samples: Held, rows: Tensor | slice, *, training: bool = False) -> tuple[Tensor, Tensor]:
        """The model's outputs for some rows, and their targets; for ``training`` in ``run.precision``."""
        feed = self._training_feed if training else self._feed
        moment = self.moment if training else None
        return feed.outputs(samples.inputs, rows, moment), taken(samples.targets, rows).to(self.device)

    def given(self, samples: Held, rows: Tensor | slice) -> tuple[Any, Tensor]:
        """What the model is fed with for some rows, and their targets."""
        return self._feed.given(samples.inputs, rows), taken(samples.targets, rows).to(self.device)

    def teacher(self, params: Tensor, buffers: Mapping[str, Tensor]) -> Callable[[Tensor], Tensor]:
        """The outputs of a fixed model, as a function of rows of the training samples."""
        model = deepcopy(self.model).eval()
        self.spec.write(params, model)
        write_buffers(buffers, model)
        feed = self.problem.feed(model, self.experiment.run.precision)

        def outputs(rows: Tensor) -> Tensor:
            with torch.no_grad():
                return feed.outputs(self.train.inputs, rows, self.moment)

        return outputs


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """A model's parameters and buffers, live."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's generators inside the block; the CPU's is restored afterwards.

    >>> before = torch.get_rng_state()
    >>> with seeded(3):
    ...     first = torch.rand(2)
    >>> with seeded(3):
    ...     torch.equal(torch.rand(2), first)
    True
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    generator = torch.default_generator
    state = generator.get_state()
    try:
        generator.manual_seed(seed)
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield
    finally:
        generator.set_state(state)
