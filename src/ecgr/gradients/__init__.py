"""Where a round's displacements are kept: the one place that holds T x d numbers.

A gradient set takes displacements one by one and answers three questions about them: their Gram matrix, their inner
products with a direction, and a linear combination. Precision and place of storage can change behind it without a
regulator noticing.
"""

from collections.abc import Callable, Mapping

from ecgr.gradients.dense import DenseGradientSet
from ecgr.gradients.protocol import GradientSet

STORES: Mapping[str, Callable[[int], GradientSet]] = {"dense": DenseGradientSet}
"""By name: how to make an empty set for displacements of a given size."""

__all__ = ["STORES", "DenseGradientSet", "GradientSet"]
