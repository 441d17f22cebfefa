"""Objects in the place of names: somebody's own regulator, algorithm, model, loss or task in an experiment.

A config says what they are by their class and fields; what their code is, a run's identity says (`ecgr.identity`).
"""

import inspect
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import sha256
from typing import Any, cast

from ecgr.algorithms import Defaults, Entry
from ecgr.component import Module
from ecgr.errors import ConfigError
from ecgr.identity import qualified_name
from ecgr.tables import Table


def description(table: Table[Any], part: Any) -> dict[str, Any]:
    """How a record and a config name a part of an experiment: an entry of a table, or somebody's own."""
    part = undress(part)
    name = table.name_of(part)
    return {"name": name, **plain_fields(part)} if name is not None else own_description(part)


def undress(part: Any) -> Any:
    """Somebody's own object without what was put around it to fit."""
    return getattr(part, "function", getattr(part, "inner", part))


def own_description(part: Any) -> dict[str, Any]:
    """Class and fields of an object that is in no table."""
    part = undress(part)
    if isinstance(part, partial):
        return {**own_description(part.func), "arguments": plain([*part.args, dict(part.keywords)])}
    kind = part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
    return {"name": qualified_name(kind), **plain_fields(part)}


def plain_fields(part: Any) -> dict[str, Any]:
    """An object's fields as values that JSON can hold."""
    if is_dataclass(part) and not isinstance(part, type):
        return {field.name: plain(getattr(part, field.name)) for field in fields(part) if field.init}
    if inspect.isroutine(part) or inspect.isclass(part):
        return {}
    return {name: plain(value) for name, value in getattr(part, "__dict__", {}).items()}


def plain(value: Any) -> Any:
    """A value that JSON can hold; what it cannot is named, or hashed where it is an array."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": qualified_name(type(value)), **plain_fields(value)}
    if hasattr(value, "__array__"):
        import numpy as np  # only for arrays

        return sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    named = value if hasattr(value, "__qualname__") else type(value)
    return qualified_name(named) if named is value or " at 0x" in repr(value) else repr(value)


@dataclass(frozen=True)
class OwnModel:
    """A model that is in no table: a function that makes one, or a module to start from, and how records describe it.

    A function may ask for what the data's shape says (``channels``, ``classes``, …) by the names of its arguments.
    """

    make: Any
    described: Mapping[str, Any]

    @classmethod
    def of(cls, given: Any) -> "OwnModel":
        """From whatever can be called for a model."""
        module = hasattr(given, "state_dict") and not isinstance(given, type)
        return cls(given, {"name": qualified_name(type(given))} if module else own_description(given))

    def build(self, shape: Mapping[str, int]) -> Module:
        """A fresh module; torch's generator decides its weights, unless a module is given as it is."""
        if hasattr(self.make, "state_dict") and not isinstance(self.make, type):
            given: Module = deepcopy(self.make)
            return given
        wanted = inspect.signature(self.make).parameters
        missing = [name for name, each in wanted.items() if _must_be_given(each) and name not in shape]
        if missing:
            known = ", ".join(sorted(shape)) or "nothing"
            raise ConfigError(f"model: wants {', '.join(missing)}, and the data say {known}; give it a default")
        made: Module = self.make(**{name: value for name, value in shape.items() if name in wanted})
        return made


def _must_be_given(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in {
        parameter.VAR_KEYWORD,
        parameter.VAR_POSITIONAL,
    }


class Completed:
    """Somebody's algorithm with what it does not say itself done as by default: nothing corrected or remembered."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner if hasattr(self.inner, name) else DEFAULTS, name)

    def __reduce__(self) -> Any:
        return Completed, (self.inner,)


DEFAULTS = Defaults()


def complete(algorithm: Any) -> Entry:
    """An algorithm with all that the training loop asks of one."""
    wanted = [name for name in vars(Defaults) if not name.startswith("_")]
    whole = hasattr(algorithm, "parts") or all(hasattr(algorithm, name) for name in wanted)
    return cast("Entry", algorithm if whole else Completed(algorithm))


def is_algorithm(given: Any) -> bool:
    """Whether an object says at least one thing that an algorithm can say."""
    return any(hasattr(given, name) for name in (*vars(Defaults), "aggregate", "parts") if not name.startswith("_"))
