"""Federated algorithms: how a client's step is corrected and how updates become a model.

An entry is a frozen dataclass, its own configuration, and knows nothing of regulators: the update it is handed in
``finish`` may be plain or regulated. `server_rules` holds what the server does with the round's update;
`compose` makes one algorithm of a correction and a rule.
"""

import warnings
from typing import Any

from ecgr.algorithms.base import Algorithm as Algorithm
from ecgr.algorithms.base import Combined as Combined
from ecgr.algorithms.base import Correction as Correction
from ecgr.algorithms.base import Defaults as Defaults
from ecgr.algorithms.base import Plan as Plan
from ecgr.algorithms.base import Population as Population
from ecgr.algorithms.base import RuleDefaults as RuleDefaults
from ecgr.algorithms.base import ServerRule as ServerRule
from ecgr.algorithms.base import Shorthand as Shorthand
from ecgr.algorithms.base import Trace as Trace
from ecgr.algorithms.base import Upload as Upload
from ecgr.algorithms.corrections import FedAvg as FedAvg
from ecgr.algorithms.corrections import FedCM as FedCM
from ecgr.algorithms.corrections import FedDyn as FedDyn
from ecgr.algorithms.corrections import FedNova as FedNova
from ecgr.algorithms.corrections import FedProx as FedProx
from ecgr.algorithms.corrections import Scaffold as Scaffold
from ecgr.algorithms.heads import HeadOnly as HeadOnly
from ecgr.algorithms.named import Composed as Composed
from ecgr.algorithms.named import DriftCorrection as DriftCorrection
from ecgr.algorithms.named import Entry as Entry
from ecgr.algorithms.named import FedACG as FedACG
from ecgr.algorithms.named import FedAdam as FedAdam
from ecgr.algorithms.named import FedAvgM as FedAvgM
from ecgr.algorithms.named import FedExP as FedExP
from ecgr.algorithms.named import FedYogi as FedYogi
from ecgr.algorithms.named import compose as compose
from ecgr.algorithms.named import is_whole as is_whole
from ecgr.algorithms.server_rules import SERVER_RULES as SERVER_RULES
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


def __getattr__(name: str) -> Any:
    if name == "Contribution":
        warnings.warn("ecgr.algorithms.Contribution is now called Upload", DeprecationWarning, stacklevel=2)
        return Upload
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
