"""Controls: the same damping and the same norm, but a choice of steps that ECGR's argument does not suggest.

If one of these does as well as ECGR, the gain is not in the choice.
"""

from zlib import crc32

import numpy as np

from ecgr.component import Fraction, PositiveFraction, component
from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators.attenuation import attenuate, kept_count


@component
class RandomHalf:
    """Keep random steps. The choice depends on ``seed`` and the steps themselves, so it is pure and varies by round."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5
    seed: int = 0

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        rng = np.random.default_rng([self.seed % 2**32, crc32(geometry.gram.numpy().tobytes())])
        kept = rng.permutation(geometry.steps)[: kept_count(geometry.steps, self.keep)]
        return attenuate(geometry, kept.tolist(), self.beta)


@component
class FirstHalf:
    """Keep the first steps of the round."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        return attenuate(geometry, range(kept_count(geometry.steps, self.keep)), self.beta)


@component
class LastHalf:
    """Keep the last steps of the round."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        steps = geometry.steps
        return attenuate(geometry, range(steps - kept_count(steps, self.keep), steps), self.beta)


@component
class SmallestNorm:
    """Keep the shortest steps."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        order = geometry.gram.diagonal().argsort(stable=True)
        return attenuate(geometry, order[: kept_count(geometry.steps, self.keep)].tolist(), self.beta)


@component
class MostAligned:
    """Keep the steps with the largest cosine to the mean step."""

    beta: Fraction = 0.2
    keep: PositiveFraction = 0.5

    def __call__(self, geometry: Geometry) -> Regulation:
        """Weigh the steps."""
        norms = geometry.gram.diagonal().clamp(min=0).sqrt()
        # <g_i, mean> / |g_i| orders steps as the cosine does; a zero step has no direction and counts as orthogonal.
        alignment = geometry.gram.mean(dim=1) / norms.where(norms > 0, 1.0)
        order = alignment.argsort(descending=True, stable=True)
        return attenuate(geometry, order[: kept_count(geometry.steps, self.keep)].tolist(), self.beta)
