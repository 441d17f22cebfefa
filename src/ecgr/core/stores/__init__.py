"""Where a round's displacements are kept: the one place that holds T x d numbers.

A store takes displacements one by one and answers two questions about them: their Gram matrix, and a linear
combination. Precision and place of storage can change behind it without a regulator noticing. What a store is called,
whether it is exact and what room it takes, it says itself.

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

Every one needs 8 T^2 bytes of memory besides, while the inner products are there.
"""

from ecgr.core.stores.auto import pick
from ecgr.core.stores.dense import DenseStore
from ecgr.core.stores.disk import DiskStore
from ecgr.core.stores.protocol import Kind, Replay, Room, Store
from ecgr.core.stores.reduced import Bf16Store, Int8Store
from ecgr.core.stores.sketch import SketchStore
from ecgr.core.stores.table import STORES, check_room

__all__ = [
    "STORES",
    "Bf16Store",
    "DenseStore",
    "DiskStore",
    "Int8Store",
    "Kind",
    "Replay",
    "Room",
    "SketchStore",
    "Store",
    "check_room",
    "pick",
]
