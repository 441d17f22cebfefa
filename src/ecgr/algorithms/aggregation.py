"""The one mean that all algorithms share."""

from collections.abc import Sequence

from ecgr.algorithms.protocol import Combined, Contribution
from ecgr.component import Tensor
from ecgr.core.vectors import weighted_mean


def mean_update(results: Sequence[Contribution]) -> Tensor:
    """The clients' updates, weighted by their examples among those who took part."""
    return weighted_mean([r.payload["update"] for r in results], [r.examples for r in results])


def combined(results: Sequence[Contribution], scale: float = 1.0) -> Combined:
    """Their mean, times ``scale``."""
    examples = sum(r.examples for r in results)
    shares = [r.examples / examples for r in results]
    return Combined(scale * mean_update(results), [r.payload["update"] for r in results], shares, scale)
