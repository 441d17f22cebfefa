"""Objects on their way to another process: packed as bytes, and one clear line where a worker could not have them.

Functions and classes of a script, a notebook or a task file travel by value: a worker need not be able to import them.
"""

import pickle
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import cloudpickle
import torch
from torch import Tensor
from torch.nn import Parameter

from ecgr.errors import ConfigError

ADVICE = (
    "define it in the script or task file itself, or in a module on the path, without open files or locks in it;"
    " or use workers=1 with engine serial"
)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Tensors travel as their bytes: torch's own way through a pipe opens a file descriptor for each."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Parameter):
            return _parameter, (value.data, value.requires_grad)
        if isinstance(value, Tensor) and type(value) is Tensor:
            return torch.from_numpy, (value.detach().cpu().numpy(),)
        return super().reducer_override(value)


def _parameter(data: Tensor, requires_grad: bool) -> Parameter:
    return Parameter(data, requires_grad=requires_grad)


def pack(value: Any) -> bytes:
    """``value`` as bytes."""
    buffer = BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def pack_for_workers(what: str, value: Any) -> bytes:
    """``value`` as bytes, or a `ConfigError` that says what cannot go to a worker process and what to do."""
    try:
        return pack(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"{what}: cannot be sent to a worker process ({_line(error)}); {ADVICE}") from None


@dataclass(frozen=True, slots=True)
class Parcel:
    """Something packed for a worker process, opened where an error can be told."""

    content: bytes

    @classmethod
    def of(cls, what: str, value: Any) -> "Parcel":
        """Pack ``value``; ``what`` is how an error calls it."""
        return cls(pack_for_workers(what, value))

    def open(self) -> Any:
        """What was packed."""
        return unpack(self.content)


def unpack(content: bytes) -> Any:
    """What was packed; a `ConfigError` where this process cannot import what it is made of."""
    try:
        return pickle.loads(content)
    except (AttributeError, ImportError) as error:
        raise ConfigError(f"a worker process cannot import what it needs ({_line(error)}); {ADVICE}") from None


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
