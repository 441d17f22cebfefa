"""Objects as bytes for another process; one clear line where a worker could not load them.

Functions and classes of a script, a notebook or a task file are sent by value: a worker need not be able to import
them. What both sides have already, as the global model in the jobs of a round, is referred to and not packed again.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from io import BytesIO
from typing import Any

import cloudpickle
import torch
from torch import Tensor
from torch.nn import Parameter

from ecgr.errors import ConfigError, one_line

ADVICE = (
    "define it in the script or task file itself, or in a module on the path, without open files or locks in it;"
    " or use workers=1 with engine serial"
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Tensors are sent as their bytes: torch's own way through a pipe opens a file descriptor for each."""

    def __init__(self, buffer: BytesIO, shared: Sequence[Any]) -> None:
        super().__init__(buffer, protocol=5)
        self._places = {id(part): place for place, part in enumerate(shared)}

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Parameter):
            return _parameter, (value.data, value.requires_grad)
        if isinstance(value, Tensor) and type(value) is Tensor:
            return torch.from_numpy, (value.detach().cpu().numpy(),)
        return super().reducer_override(value)

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: BytesIO, shared: Sequence[Any]) -> None:
        super().__init__(buffer)
        self._shared = shared

    def persistent_load(self, place: Any) -> Any:
        return self._shared[place]


def _parameter(data: Tensor, requires_grad: bool) -> Parameter:
    return Parameter(data, requires_grad=requires_grad)


def pack(value: Any, shared: Sequence[Any] = ()) -> bytes:
    """``value`` as bytes; objects that are in ``shared`` are referred to by their position."""
    buffer = BytesIO()
    _Pickler(buffer, shared).dump(value)
    return buffer.getvalue()


def pack_for_workers(what: str, value: Any, shared: Sequence[Any] = ()) -> bytes:
    """`pack`, or a `ConfigError` that says what cannot be sent to a worker process and what to do."""
    try:
        return pack(value, shared)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"{what}: cannot be sent to a worker process ({one_line(error)}); {ADVICE}") from None


def common_parts(values: Sequence[Any]) -> tuple[Any, ...]:
    """The tensors and mappings that several dataclasses of one kind all hold: the same objects, not equal ones.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Job:
    ...     client: int
    ...     params: Tensor
    >>> params = torch.zeros(2)
    >>> common_parts([Job(0, params), Job(1, params)])[0] is params
    True
    """
    first = values[0] if len(values) > 1 else None
    if not is_dataclass(first) or any(type(value) is not type(first) for value in values):
        return ()
    held = {field.name: getattr(first, field.name) for field in fields(first)}
    return tuple(
        part
        for name, part in held.items()
        if isinstance(part, Tensor | Mapping) and all(getattr(value, name) is part for value in values)
    )


def unpack(content: bytes, shared: Sequence[Any] = ()) -> Any:
    """The inverse of `pack`; a `ConfigError` if this process cannot import what it needs."""
    try:
        return _Unpickler(BytesIO(content), shared).load()
    except (AttributeError, ImportError) as error:
        raise ConfigError(f"a worker process cannot import what it needs ({one_line(error)}); {ADVICE}") from None
