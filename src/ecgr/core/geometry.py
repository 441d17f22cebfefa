"""The geometry of a client's local steps, and what a regulator makes of it.

With the T displacements of a round as rows of ``G``, everything a regulator needs is in ``gram = G @ G.T``: herding,
damping and norm restoration read inner products only. So a regulator is a pure function from a T x T matrix to T
weights, and the update it stands for is ``weights @ G``, at the length of the plain update where that is restored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ecgr.component import Tensor, torch
from ecgr.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """Inner products of a round's steps.

    Attributes:
        gram: ``<g_i, g_j>``, (T, T), float64 on the CPU; anything ``torch.as_tensor`` reads is accepted.

    >>> Geometry(gram=[[1.0, 0.0], [0.0, 4.0]]).steps
    2
    """

    gram: Tensor

    def __post_init__(self) -> None:
        gram = torch.as_tensor(self.gram, dtype=torch.float64, device="cpu")
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not len(gram):
            raise ValueError(f"gram must be a square matrix of at least one step, got shape {tuple(gram.shape)}")
        if not is_finite(gram):
            raise ValueError(
                "gram holds NaN or infinite values, or ones that overflow; such an update cannot be regulated"
            )
        object.__setattr__(self, "gram", gram)

    @property
    def steps(self) -> int:
        """T, the number of local steps."""
        return len(self.gram)


@dataclass(frozen=True, slots=True, eq=False)
class Regulation:
    """What a regulator says of a round's steps.

    Attributes:
        weights: one for each step, (T,), float64.
        restore: whether the weighted sum gets the length of the plain update back. Who has the steps themselves takes
            both lengths from them and not from inner products, which may be estimates.
        kept: the steps that were selected, in the order of choice.
        metrics: numbers worth recording; ``gamma`` among them is the factor that restores the length.
    """

    weights: Tensor
    restore: bool
    kept: tuple[int, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def coefficients(self) -> Tensor:
        """By how much each step counts in the end: its weight, times ``gamma`` where the length is restored."""
        if not self.restore:
            return self.weights
        if "gamma" not in self.metrics:
            raise ValueError(
                "these weights were not held against steps yet, so the factor that restores their length is unknown;"
                " make the regulation by ecgr.core.regulators.restore, or ask a Recorder for the update"
            )
        return self.weights * self.metrics["gamma"]

    @property
    def changes_nothing(self) -> bool:
        """Whether the update is the plain one."""
        return bool((self.weights == 1.0).all())

    def with_metrics(self, **metrics: float) -> "Regulation":
        """The same with more numbers worth recording."""
        return replace(self, metrics={**self.metrics, **metrics})


class Regulator(Protocol):
    """A pure function from the geometry of the steps to their weights; a frozen dataclass is its own config."""

    def __call__(self, geometry: Geometry) -> Regulation: ...


def weigh(regulator: Any, geometry: Geometry) -> Regulation:
    """A regulator's answer, checked: a user's own may give something else."""
    if isinstance(regulator, type) or not callable(regulator):
        raise ConfigError(f"regulator: {regulator!r} is none; give an object, for example ecgr.ECGR(beta=0.2)")
    said, name = regulator(geometry), getattr(regulator, "__name__", type(regulator).__name__)
    if not isinstance(said, Regulation):
        raise ConfigError(f"regulator: {name} gives {type(said).__name__}; give an ecgr.Regulation")
    if said.weights.shape != (geometry.steps,):
        given = tuple(said.weights.shape)
        raise ConfigError(
            f"regulator: {name} gives weights of shape {given}; give one for each of {geometry.steps} steps"
        )
    return said


def identity(steps: int, **metrics: float) -> Regulation:
    """The regulation that leaves the plain update as it is.

    >>> identity(3).changes_nothing
    True
    """
    return Regulation(torch.ones(steps, dtype=torch.float64), restore=False, kept=tuple(range(steps)), metrics=metrics)


def is_finite(gram: Tensor) -> bool:
    """Whether all entries, and their sum, are finite; no second matrix is made to find out.

    >>> is_finite(torch.tensor([[1.0, float("inf")]]))
    False
    """
    return bool(torch.linalg.vector_norm(gram, ord=1).isfinite())
