"""The sections of an experiment that are not themselves a table entry, or hold more than one.

Every field is a config key; its type says what is allowed.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from ecgr.component import Count, Module, PositiveFraction, component
from ecgr.config.schema import GIVEN_BY_DATA
from ecgr.core.stores import STORES
from ecgr.errors import ConfigError
from ecgr.tasks.models import MODELS

if TYPE_CHECKING:
    StoreName = str
else:
    StoreName = Literal[tuple(STORES)]

Precision = Literal["float32", "bf16"]
Rounds = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
"""Names that some systems take for devices, with whatever extension."""


def _not_reserved(name: str) -> str:
    if name.partition(".")[0].lower() in RESERVED:
        raise ValueError(f"{name} is the name of a device")
    return name


RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"), AfterValidator(_not_reserved)]


Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


@component
class DataSettings:
    """``[data]`` besides what the data set itself takes."""

    fraction: PositiveFraction = 1.0
    test_fraction: PositiveFraction | None = None
    metrics: Names | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0


@component
class PartitionSettings:
    """``[partition]`` besides what the partitioner itself takes.

    Without ``clients``, there are as many as the data have groups, where it is groups that are dealt out, as many as
    ``file`` says, or else ten.
    """

    clients: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    min_batches: Annotated[int, Field(ge=0)] = 2
    empty: Literal["error", "skip"] = "error"
    file: str | None = None


@component
class FederationSettings:
    """``[federation]``: rounds, local work, participation."""

    rounds: Rounds = 100
    local_epochs: Count = 1
    batch_size: Count = 32
    participation: PositiveFraction = 1.0
    last_batch: Literal["keep", "merge", "drop"] = "keep"


@component
class RunSettings:
    """``[run]``: seed, name, and how the simulator treats what the paper leaves open."""

    seed: Seed = 0
    name: RunName | None = None
    store: StoreName = "dense"
    checkpoint_every: Count = 1
    precision: Precision = "float32"


@component
class ModelChoice:
    """A model by name, with its configuration."""

    name: str
    parameters: Mapping[str, Any]

    @property
    def described(self) -> dict[str, Any]:
        """How records describe it."""
        return {"name": self.name, **{k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters.items()}}

    def build(self, shape: Mapping[str, int]) -> Module:
        """A model for data of this shape; refused with the models that fit, where the data lack what it needs."""
        wanted = {name: _needs(build) for name, build in MODELS.items()}
        missing = sorted(wanted[self.name] - set(shape))
        if missing:
            fitting = ", ".join(sorted(name for name, needs in wanted.items() if needs <= set(shape)))
            raise ConfigError(
                f"model.name: {self.name} needs {', '.join(missing)}, and these data have {', '.join(sorted(shape))};"
                f" models that fit: {fitting or 'none'}"
            )
        taken = GIVEN_BY_DATA & set(shape) & set(signature(MODELS[self.name]).parameters)
        return MODELS[self.name](**{name: shape[name] for name in sorted(taken)}, **self.parameters)


def _needs(build: Callable[..., Any]) -> set[str]:
    """What a model must be told about the data; what it can do without (``classes`` or ``outputs``) is None there."""
    parameters = signature(build).parameters
    return {name for name in parameters if name in GIVEN_BY_DATA and parameters[name].default is not None}
