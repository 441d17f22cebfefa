"""Regulators: pure functions from the geometry of a client's steps to one weight per step.

All of them but ``none`` select a part of the steps, damp the others and restore the norm of the plain update. They
differ in the selection alone, so that comparing them says what it is worth.
"""

from ecgr.core.geometry import Geometry, Regulation, Regulator
from ecgr.core.regulators.controls import FirstHalf, LastHalf, MostAligned, RandomHalf, SmallestNorm
from ecgr.core.regulators.damping import damp, restore, share
from ecgr.core.regulators.herding import ECGR, BHerd, SafeECGR, herd
from ecgr.core.regulators.plain import Plain
from ecgr.tables import Table

REGULATORS: Table[Regulator] = Table(
    "regulator",
    "regulators",
    {
        "none": Plain,
        "ecgr": ECGR,
        "safe_ecgr": SafeECGR,
        "random_half": RandomHalf,
        "first_half": FirstHalf,
        "last_half": LastHalf,
        "smallest_norm": SmallestNorm,
        "most_aligned": MostAligned,
        "bherd": BHerd,
    },
)

__all__ = [
    "ECGR",
    "REGULATORS",
    "BHerd",
    "FirstHalf",
    "Geometry",
    "LastHalf",
    "MostAligned",
    "Plain",
    "RandomHalf",
    "Regulation",
    "Regulator",
    "SafeECGR",
    "SmallestNorm",
    "damp",
    "herd",
    "restore",
    "share",
]
