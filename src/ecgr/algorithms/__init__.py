"""Federated algorithms: how a client's step is corrected and how updates become a model. A correction is one file.

An entry is a frozen dataclass, its own configuration, and knows nothing of regulators: the update it is handed in
``finish`` may be plain or regulated. `server_rules` holds what the server does with the round's update;
`compose` makes one algorithm of a correction and a rule.
"""

import warnings
from typing import Any

from ecgr.algorithms.base import (
    Algorithm,
    Combined,
    Correction,
    Defaults,
    Plan,
    Population,
    RuleDefaults,
    ServerRule,
    Shorthand,
    Trace,
    Upload,
)
from ecgr.algorithms.fedavg import FedAvg
from ecgr.algorithms.fedcm import FedCM
from ecgr.algorithms.feddyn import FedDyn
from ecgr.algorithms.fednova import FedNova
from ecgr.algorithms.fedprox import FedProx
from ecgr.algorithms.heads import HeadOnly
from ecgr.algorithms.named import (
    Composed,
    DriftCorrection,
    Entry,
    FedACG,
    FedAdam,
    FedAvgM,
    FedExP,
    FedYogi,
    compose,
    is_whole,
)
from ecgr.algorithms.scaffold import Scaffold
from ecgr.algorithms.server_rules import SERVER_RULES
from ecgr.tables import Table

ALGORITHMS: Table[Entry] = Table(
    "algorithm",
    "algorithms",
    {
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "fednova": FedNova,
        "scaffold": Scaffold,
        "fedcm": FedCM,
        "feddyn": FedDyn,
        "fedavgm": FedAvgM,
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
        "fedacg": FedACG,
        "fedexp": FedExP,
        "drift_correction": DriftCorrection,
        "head_only": HeadOnly,
    },
)

__all__ = [
    "ALGORITHMS",
    "SERVER_RULES",
    "Algorithm",
    "Combined",
    "Composed",
    "Correction",
    "Defaults",
    "DriftCorrection",
    "Entry",
    "FedACG",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedCM",
    "FedDyn",
    "FedExP",
    "FedNova",
    "FedProx",
    "FedYogi",
    "HeadOnly",
    "Plan",
    "Population",
    "RuleDefaults",
    "Scaffold",
    "ServerRule",
    "Shorthand",
    "Trace",
    "Upload",
    "compose",
    "is_whole",
]


def __getattr__(name: str) -> Any:
    if name == "Contribution":
        warnings.warn("ecgr.algorithms.Contribution is now called Upload", DeprecationWarning, stacklevel=2)
        return Upload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
