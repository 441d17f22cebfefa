"""The one aggregation rule that all algorithms share."""

from collections.abc import Sequence

from ecgr.algorithms.protocol import Contribution
from ecgr.component import Tensor
from ecgr.core.vectors import weighted_mean


def mean_update(results: Sequence[Contribution]) -> Tensor:
    """The clients' updates, weighted by their examples among those who took part."""
    return weighted_mean([r.payload["update"] for r in results], [r.examples for r in results])
