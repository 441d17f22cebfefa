"""What every entry of a table is made of: a validated frozen dataclass, and torch that loads on first use.

A component (a regulator, an algorithm, a partitioner, …) is its own configuration: its fields carry types and
ranges, a config file fills them, and constructing one by hand checks the same things. Reading a config needs those
declarations only, so component modules import ``torch`` from here: a typing error in a config is then answered in
milliseconds, not after the second and a half that importing torch takes.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast, dataclass_transform

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated_dataclass

from ecgr.errors import ConfigError
from ecgr.tables import shown

if TYPE_CHECKING:
    import torch as torch
    from torch import Tensor as Tensor
    from torch.nn import Module as Module
else:

    class _LazyTorch:
        """Stands for the torch module until an attribute is asked for."""

        def __getattr__(self, name: str) -> Any:
            import torch  # the point of this class

            return getattr(torch, name)

    torch = _LazyTorch()
    Tensor = Module = Any

C = TypeVar("C", bound=type)

State: TypeAlias = Mapping[str, Tensor]
"""What crosses a wire or a disk: named tensors."""

Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
Momentum = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


def rule(text: str, holds: Callable[[Any], object]) -> AfterValidator:
    """A field's own rule: what it must be, in words, and whether a value is."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(text)
        return value

    return AfterValidator(check)


@dataclass_transform(frozen_default=True)
def component(cls: C) -> C:
    """Make ``cls`` a frozen, slotted dataclass whose fields are checked strictly when it is constructed.

    A value that a field does not allow is a `ConfigError` with one line for each field.
    """
    decorate: Any = validated_dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, extra="forbid"))
    made = decorate(cls)
    construct = made.__init__

    @wraps(construct)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            construct(self, *args, **kwargs)
        except ValidationError as error:
            raise ConfigError(*(_problem(cls.__name__, detail) for detail in error.errors())) from None

    made.__init__ = checked
    return cast("C", made)


def _problem(name: str, detail: Any) -> str:
    where = ".".join(str(part) for part in (name, *detail["loc"]))
    rule = detail["msg"].replace("Input should be", "must be").replace("Value error, ", "")
    return f"{where}: {rule}, got {shown(detail['input'])}"
