"""Federated algorithms: how a client's step is corrected and how updates become a model. One paper, one file.

An algorithm is a frozen dataclass, its own configuration, and knows nothing of regulators: the update it is handed
in ``finish`` may be plain or regulated.
"""

from ecgr.algorithms.fedadam import FedAdam
from ecgr.algorithms.fedavg import FedAvg
from ecgr.algorithms.fedavgm import FedAvgM
from ecgr.algorithms.fednova import FedNova
from ecgr.algorithms.fedprox import FedProx
from ecgr.algorithms.fedyogi import FedYogi
from ecgr.algorithms.protocol import Algorithm, Contribution, Population, Trace
from ecgr.algorithms.scaffold import Scaffold
from ecgr.tables import Table

ALGORITHMS: Table[Algorithm] = Table(
    "algorithm",
    "algorithms",
    {
        "fedavg": FedAvg,
        "fedprox": FedProx,
        "fednova": FedNova,
        "scaffold": Scaffold,
        "fedavgm": FedAvgM,
        "fedadam": FedAdam,
        "fedyogi": FedYogi,
    },
)

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Contribution",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedNova",
    "FedProx",
    "FedYogi",
    "Population",
    "Scaffold",
    "Trace",
]
