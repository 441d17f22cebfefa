"""A regulator: one weight for each local step, from the inner products of the steps alone."""

from dataclasses import dataclass

from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators import damp, share


@dataclass(frozen=True)
class LargestNorm:
    """Keep the longer half of the steps, damp the others by beta."""

    beta: float = 0.2

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        order = geometry.gram.diagonal().argsort(descending=True, stable=True)
        return damp(geometry, order[: share(geometry.steps, 0.5)].tolist(), self.beta)
