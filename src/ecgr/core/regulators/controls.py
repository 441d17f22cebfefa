"""Controls: the same damping and the same norm, but a choice of steps that ECGR's argument does not suggest.

If one of these does as well as ECGR, the gain is not in the choice.
"""

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from ecgr.component import Fraction, PositiveFraction, component
from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators.damping import damp, share


@component
class Control:
    """Keep a share of the steps, damp the others by beta, restore the norm; a control says which steps."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        return damp(geometry, self.select(geometry, share(geometry.steps, self.keep)), self.beta)

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The ``count`` steps to keep."""
        raise NotImplementedError


@component
class RandomHalf(Control):
    """Keep random steps. The choice depends on ``seed`` and the steps themselves, so it is pure and varies by round."""

    seed: int = 0

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The first of a random order, drawn from the bytes of the matrix."""
        rng = np.random.default_rng([self.seed % 2**32, crc32(np.ascontiguousarray(geometry.gram).data)])
        kept: list[int] = rng.permutation(geometry.steps)[:count].tolist()
        return kept


@component
class FirstHalf(Control):
    """Keep the first steps of the round."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The first ones."""
        return range(count)


@component
class LastHalf(Control):
    """Keep the last steps of the round."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The last ones."""
        return range(geometry.steps - count, geometry.steps)


@component
class SmallestNorm(Control):
    """Keep the shortest steps."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """The shortest ones, the earlier first where they are equal."""
        return geometry.gram.diagonal().argsort(stable=True)[:count].tolist()


@component
class MostAligned(Control):
    """Keep the steps with the largest cosine to the mean step."""

    def select(self, geometry: Geometry, count: int) -> Sequence[int]:
        """Those with the largest cosine, the earlier first where they are equal."""
        norms = geometry.gram.diagonal().clamp(min=0).sqrt()
        # <g_i, mean> / |g_i| orders steps as the cosine does; a zero step has no direction and counts as orthogonal.
        alignment = geometry.gram.mean(dim=1) / norms.where(norms > 0, 1.0)
        return alignment.argsort(descending=True, stable=True)[:count].tolist()
