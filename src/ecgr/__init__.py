"""Local gradient regulation for federated learning.

The drop-in for a training loop is `Recorder` with a regulator such as `ECGR`; experiments are `load`, `run` and
`compare`. Names load on first use, so ``import ecgr`` costs next to nothing and does not import torch.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from ecgr._version import __version__ as __version__

if _TYPE_CHECKING:
    from ecgr.algorithms import ALGORITHMS as ALGORITHMS
    from ecgr.config import Experiment as Experiment
    from ecgr.config import load as load
    from ecgr.data import DATASETS as DATASETS
    from ecgr.data import PARTITIONERS as PARTITIONERS
    from ecgr.errors import ConfigError as ConfigError
    from ecgr.errors import DataError as DataError
    from ecgr.errors import EcgrError as EcgrError
    from ecgr.errors import EnvironmentFault as EnvironmentFault
    from ecgr.errors import IntegrityError as IntegrityError
    from ecgr.errors import QuorumLost as QuorumLost
    from ecgr.geometry import Geometry as Geometry
    from ecgr.geometry import Regulation as Regulation
    from ecgr.models import MODELS as MODELS
    from ecgr.record import RunRecord as RunRecord
    from ecgr.recorder import Recorder as Recorder
    from ecgr.recorder import Update as Update
    from ecgr.regulators import ECGR as ECGR
    from ecgr.regulators import REGULATORS as REGULATORS
    from ecgr.regulators import herd as herd
    from ecgr.runner import run as run
    from ecgr.sweep import compare as compare

_HOMES = {
    "ALGORITHMS": "algorithms",
    "ConfigError": "errors",
    "DATASETS": "data",
    "DataError": "errors",
    "ECGR": "regulators",
    "EcgrError": "errors",
    "EnvironmentFault": "errors",
    "Experiment": "config",
    "Geometry": "geometry",
    "IntegrityError": "errors",
    "MODELS": "models",
    "PARTITIONERS": "data",
    "QuorumLost": "errors",
    "REGULATORS": "regulators",
    "Recorder": "recorder",
    "Regulation": "geometry",
    "RunRecord": "record",
    "Update": "recorder",
    "compare": "sweep",
    "herd": "regulators",
    "load": "config",
    "run": "runner",
}

__all__ = [
    "ALGORITHMS",
    "ConfigError",
    "DATASETS",
    "DataError",
    "ECGR",
    "EcgrError",
    "EnvironmentFault",
    "Experiment",
    "Geometry",
    "IntegrityError",
    "MODELS",
    "PARTITIONERS",
    "QuorumLost",
    "REGULATORS",
    "Recorder",
    "Regulation",
    "RunRecord",
    "Update",
    "__version__",
    "compare",
    "herd",
    "load",
    "run",
]


def __getattr__(name: str) -> _Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecgr' has no attribute {name!r}")
    value = getattr(_import_module(f"ecgr.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
