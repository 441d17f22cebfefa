"""Where a round's displacements are kept: the one place that holds T x d numbers.

A gradient set takes displacements one by one and answers three questions about them: their Gram matrix, their inner
products with a direction, and a linear combination. Precision and place of storage can change behind it without a
regulator noticing.

========  ==========================  =====================================================
store     room for T steps of d       answers
========  ==========================  =====================================================
dense     4 T d bytes of memory       exact
bf16      2 T d                       relative error 2^-8 a number
int8      1 T d                       error 1/254 of the largest of 256 neighbours
disk      4 T d on the disk           those of dense, to the bit
replay    4 T k, k = 1,024            selection on a sketch, then the combination of dense
auto      that of dense or disk       those of dense, to the bit, unless only replay fits
========  ==========================  =====================================================
"""

from collections.abc import Mapping

from ecgr.core.stores.dense import DenseGradientSet
from ecgr.core.stores.disk import DiskGradientSet
from ecgr.core.stores.protocol import GradientSet, Replay, Store
from ecgr.core.stores.reduced import Bf16GradientSet, Int8GradientSet
from ecgr.core.stores.room import check_room, pick
from ecgr.core.stores.sketch import SketchGradientSet


def auto(size: int, *, steps: int | None = None, replay: Replay | None = None) -> GradientSet:
    """A set of the kind that `pick` chooses."""
    return STORES[pick(size, steps, replayable=replay is not None)](size, steps=steps, replay=replay)


STORES: Mapping[str, Store] = {
    "dense": DenseGradientSet,
    "bf16": Bf16GradientSet,
    "int8": Int8GradientSet,
    "disk": DiskGradientSet,
    "replay": SketchGradientSet,
    "auto": auto,
}
"""By name: how to make an empty set for displacements of a given size."""

EXACT = frozenset({"dense", "disk"})
"""Stores whose answers are those of the displacements themselves, to the same bits."""

__all__ = [
    "EXACT",
    "STORES",
    "Bf16GradientSet",
    "DenseGradientSet",
    "DiskGradientSet",
    "GradientSet",
    "Int8GradientSet",
    "Replay",
    "SketchGradientSet",
    "Store",
    "check_room",
    "pick",
]
