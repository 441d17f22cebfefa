"""A model's parameters as one flat vector, and back; buffers are kept apart.

The vector is float32, or float64 where a parameter is: nothing is ever read in less than its own precision.

Parameters and buffers are told apart by the module, never by name: a running mean is a statistic, not a weight.

What other libraries wrap around a model is taken off first: DistributedDataParallel and DataParallel hold it as
``module``, ``torch.compile`` as ``_orig_mod``. They are known by what they have, so that none is a dependency.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import prod

from ecgr.component import Module, Tensor, torch

COMPILED, PARALLEL = "_orig_mod", "module"


def bare_model(model: Module) -> Module:
    """The model itself, below ``torch.compile`` and data parallelism.

    >>> inner = torch.nn.Linear(2, 1)
    >>> bare_model(torch.nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if COMPILED in model._modules:
            model = model.get_submodule(COMPILED)
        elif isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def bare_name(name: str) -> str:
    """A parameter's name without what wrappers put into it.

    >>> bare_name("module._orig_mod.head._orig_mod.weight")
    'head.weight'
    """
    name = name.replace(f"{COMPILED}.", "")
    while name.startswith(f"{PARALLEL}."):
        name = name.removeprefix(f"{PARALLEL}.")
    return name


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """Where each trainable tensor of a model lies in the flat vector.

    Tied weights count once, frozen parameters not at all.

    >>> spec = ParamSpec.of(torch.nn.Linear(2, 3))
    >>> spec.names, spec.size
    (('weight', 'bias'), 9)
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: Module, without: Container[str] = ()) -> "ParamSpec":
        """The layout of ``model``'s trainable parameters, but those that are named."""
        model = bare_model(model)
        trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
        named: list[tuple[str, Tensor]] = [(name, p) for name, p in trained if name not in without]
        if not named:
            raise ValueError("the model has no trainable parameter, so there is nothing to record or average")
        complex_names = [name for name, tensor in named if tensor.is_complex()]
        if complex_names:
            raise ValueError(f"complex parameters are not supported: {', '.join(complex_names)}")
        return cls(tuple(name for name, _ in named), tuple(tuple(tensor.shape) for _, tensor in named))

    @property
    def size(self) -> int:
        """d, the length of the flat vector."""
        return sum(prod(shape) for shape in self.shapes)

    def digest(self) -> str:
        """A short hash of names and shapes: two models with the same one can exchange vectors."""
        return sha256(repr((self.names, self.shapes)).encode()).hexdigest()[:16]

    def tensors(self, model: Module) -> list[Tensor]:
        """The tensors of ``model`` that the vector describes, in its order; live, so that they follow the model.

        Names that only a wrapper makes different (DistributedDataParallel's, ``torch.compile``'s) are the same names.
        """
        model, names = bare_model(model), self.names
        available: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
        if not available.keys() >= set(names):
            available = {bare_name(name): tensor for name, tensor in available.items()}
            names = tuple(map(bare_name, names))
        missing = [name for name in names if name not in available]
        if missing:
            raise ValueError(f"the model lacks {', '.join(missing)}: it is not the one this vector describes")
        tensors = [available[name] for name in names]
        for name, shape, tensor in zip(names, self.shapes, tensors, strict=True):
            if tuple(tensor.shape) != shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}, the vector describes {shape}")
        return tensors

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Copy ``tensors`` into one flat vector, on the device of the first."""
        where, dtype = tensors[0].device, widest(tensors)
        with torch.no_grad():
            return torch.cat([tensor.reshape(-1).to(where, dtype) for tensor in tensors])

    def views(self, flat: Tensor) -> Iterator[Tensor]:
        """The pieces of ``flat``, in the shapes of the tensors they stand for, without copying."""
        if flat.shape != (self.size,):
            raise ValueError(f"expected a vector of {self.size} values, got shape {tuple(flat.shape)}")
        offset = 0
        for shape in self.shapes:
            size = prod(shape)
            yield flat[offset : offset + size].view(shape)
            offset += size

    def read(self, model: Module) -> Tensor:
        """``model``'s parameters as a flat vector."""
        return self.flatten(self.tensors(model))

    def write(self, flat: Tensor, model: Module) -> None:
        """Set ``model``'s parameters from a flat vector; buffers stay as they are."""
        with torch.no_grad():
            torch._foreach_copy_(self.tensors(model), list(self.views(flat)))

    def named(self, flat: Tensor) -> dict[str, Tensor]:
        """The pieces of ``flat`` by parameter name."""
        return dict(zip(self.names, self.views(flat), strict=True))


def widest(tensors: Sequence[Tensor]) -> "torch.dtype":
    """The precision that loses nothing of any tensor: float64 where one is, else float32.

    >>> widest([torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1)])
    torch.float32
    """
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


def read_buffers(model: Module) -> dict[str, Tensor]:
    """Copies of the persistent buffers."""
    buffers = list(model.named_buffers())
    persistent = model.state_dict(keep_vars=True) if buffers else {}
    return {name: buffer.detach().clone() for name, buffer in buffers if name in persistent}


def write_buffers(buffers: Mapping[str, Tensor], model: Module) -> None:
    """Set ``model``'s buffers in place."""
    own = dict(model.named_buffers()) if buffers else {}
    for name, value in buffers.items():
        own[name].copy_(value)


def weighted_mean(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """The mean of equally shaped tensors, summed in the given order in float64.

    >>> weighted_mean([torch.tensor([1.0]), torch.tensor([4.0])], [2, 1])
    tensor([2.])
    """
    total = torch.zeros_like(vectors[0], dtype=torch.float64)
    for vector, weight in zip(vectors, weights, strict=True):
        total.add_(vector, alpha=float(weight))
    return total.div_(float(sum(weights))).to(vectors[0].dtype)


def merge_buffers(clients: Sequence[Mapping[str, Tensor]], examples: Sequence[int]) -> dict[str, Tensor]:
    """Statistics by example-weighted mean, counters by maximum: always between the clients' smallest and largest."""
    merged = {}
    for name, first in clients[0].items():
        values = [buffers[name] for buffers in clients]
        stack = torch.stack(values)
        if first.is_floating_point():
            merged[name] = weighted_mean(values, examples).clamp(stack.amin(0), stack.amax(0))
        else:
            merged[name] = stack.amax(0)
    return merged
