"""Which federated learning method works on your data, how good it is in the end, and how soon it gets there.

The drop-in for a training loop is `Recorder` with a regulator such as `ECGR`; experiments are `load`, `run` and
`compare`. Names load on first use, so ``import ecgr`` costs next to nothing and does not import torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ecgr._version import __version__ as __version__

if _TYPE_CHECKING:
    from ecgr.algorithms import ALGORITHMS as ALGORITHMS
    from ecgr.algorithms import SERVER_RULES as SERVER_RULES
    from ecgr.algorithms import DriftCorrection as DriftCorrection
    from ecgr.algorithms import FedACG as FedACG
    from ecgr.algorithms import FedAdam as FedAdam
    from ecgr.algorithms import FedAvg as FedAvg
    from ecgr.algorithms import FedAvgM as FedAvgM
    from ecgr.algorithms import FedCM as FedCM
    from ecgr.algorithms import FedDyn as FedDyn
    from ecgr.algorithms import FedExP as FedExP
    from ecgr.algorithms import FedNova as FedNova
    from ecgr.algorithms import FedProx as FedProx
    from ecgr.algorithms import FedYogi as FedYogi
    from ecgr.algorithms import Scaffold as Scaffold
    from ecgr.compare import Answer as Answer
    from ecgr.compare import compare as compare
    from ecgr.config.experiment import Experiment as Experiment
    from ecgr.config.experiment import load as load
    from ecgr.config.methods import Method as Method
    from ecgr.core.geometry import Geometry as Geometry
    from ecgr.core.geometry import Regulation as Regulation
    from ecgr.core.recorder import Recorder as Recorder
    from ecgr.core.recorder import Update as Update
    from ecgr.core.regulators import ECGR as ECGR
    from ecgr.core.regulators import REGULATORS as REGULATORS
    from ecgr.core.regulators import herd as herd
    from ecgr.errors import ConfigError as ConfigError
    from ecgr.errors import DataError as DataError
    from ecgr.errors import EcgrError as EcgrError
    from ecgr.errors import EnvironmentFault as EnvironmentFault
    from ecgr.errors import IntegrityError as IntegrityError
    from ecgr.errors import NotFiniteWarning as NotFiniteWarning
    from ecgr.errors import QuorumLost as QuorumLost
    from ecgr.errors import RecordingError as RecordingError
    from ecgr.runs.record import RunRecord as RunRecord
    from ecgr.runs.runner import run as run
    from ecgr.tasks.data import DATASETS as DATASETS
    from ecgr.tasks.losses import BCE as BCE
    from ecgr.tasks.losses import LOSSES as LOSSES
    from ecgr.tasks.losses import MSE as MSE
    from ecgr.tasks.losses import CrossEntropy as CrossEntropy
    from ecgr.tasks.metrics import METRICS as METRICS
    from ecgr.tasks.models import MODELS as MODELS
    from ecgr.tasks.partition import IID as IID
    from ecgr.tasks.partition import PARTITIONERS as PARTITIONERS
    from ecgr.tasks.partition import Dirichlet as Dirichlet
    from ecgr.tasks.partition import Groups as Groups
    from ecgr.tasks.partition import Quantity as Quantity
    from ecgr.tasks.partition import Shards as Shards
    from ecgr.tasks.task import Samples as Samples
    from ecgr.tasks.task import Task as Task

_HOMES = {
    name: home
    for home, names in {
        "algorithms": (
            "ALGORITHMS DriftCorrection FedACG FedAdam FedAvg FedAvgM FedCM FedDyn FedExP FedNova FedProx FedYogi "
            "SERVER_RULES Scaffold"
        ),
        "compare": "Answer compare",
        "core.geometry": "Geometry Regulation",
        "core.regulators": "ECGR REGULATORS herd",
        "core.recorder": "Recorder Update",
        "errors": (
            "ConfigError DataError EcgrError EnvironmentFault IntegrityError NotFiniteWarning QuorumLost RecordingError"
        ),
        "config.experiment": "Experiment load",
        "config.methods": "Method",
        "runs.record": "RunRecord",
        "runs.runner": "run",
        "tasks.data": "DATASETS",
        "tasks.losses": "BCE CrossEntropy LOSSES MSE",
        "tasks.metrics": "METRICS",
        "tasks.models": "MODELS",
        "tasks.partition": "Dirichlet Groups IID PARTITIONERS Quantity Shards",
        "tasks.task": "Samples Task",
    }.items()
    for name in names.split()
}

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecgr' has no attribute {name!r}")
    value = getattr(_import_module(f"ecgr.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
