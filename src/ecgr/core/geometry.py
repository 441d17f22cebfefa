"""The geometry of a client's local steps, and what a regulator makes of it.

With the T displacements of a round as rows of ``G``, everything a regulator needs is in ``gram = G @ G.T``: herding,
damping and norm restoration read inner products only. So a regulator is a pure function from a T x T matrix to T
coefficients, and the update it stands for is ``coefficients @ G``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ecgr.component import Tensor, torch


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """Inner products of a round's steps.

    Attributes:
        gram: ``<g_i, g_j>``, (T, T), float64 on the CPU; anything ``torch.as_tensor`` reads is accepted.
        previous: ``<g_i, last global step>``, (T,), or None where the client did not see the last global model.

    >>> Geometry(gram=[[1.0, 0.0], [0.0, 4.0]]).steps
    2
    """

    gram: Tensor
    previous: Tensor | None = None

    def __post_init__(self) -> None:
        gram = torch.as_tensor(self.gram, dtype=torch.float64, device="cpu")
        if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not len(gram):
            raise ValueError(f"gram must be a square matrix of at least one step, got shape {tuple(gram.shape)}")
        if not torch.isfinite(gram.abs().sum()):
            raise ValueError(
                "gram holds NaN or infinite values, or ones that overflow; such an update cannot be regulated"
            )
        object.__setattr__(self, "gram", gram)
        if self.previous is not None:
            previous = torch.as_tensor(self.previous, dtype=torch.float64, device="cpu")
            if previous.shape != gram.shape[:1]:
                raise ValueError(
                    f"previous must have one entry for each of {len(gram)} steps, got {tuple(previous.shape)}"
                )
            object.__setattr__(self, "previous", previous)

    @property
    def steps(self) -> int:
        """T, the number of local steps."""
        return len(self.gram)


@dataclass(frozen=True, slots=True, eq=False)
class Regulation:
    """One coefficient per step, the steps that were kept (in the order of choice), and numbers worth recording.

    Attributes:
        weights: the coefficients before they were rescaled to the length of the plain update, where they were: who has
            the steps themselves then takes both lengths from them and not from inner products, which may be estimates.
    """

    coefficients: Tensor
    kept: tuple[int, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    weights: Tensor | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether the update is the plain one."""
        return bool((self.coefficients == 1.0).all())


class Regulator(Protocol):
    """A pure function from the geometry of the steps to their coefficients; a frozen dataclass is its own config."""

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        ...


def identity(steps: int, **metrics: float) -> Regulation:
    """The regulation that leaves the plain update as it is.

    >>> identity(3).changes_nothing
    True
    """
    return Regulation(torch.ones(steps, dtype=torch.float64), tuple(range(steps)), metrics)
