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
    from ecgr.compare import Answer as Answer
    from ecgr.compare import compare as compare
    from ecgr.core.geometry import Geometry as Geometry
    from ecgr.core.geometry import Regulation as Regulation
    from ecgr.core.recorder import Recorder as Recorder
    from ecgr.core.regulators import ECGR as ECGR
    from ecgr.core.regulators import REGULATORS as REGULATORS
    from ecgr.core.regulators import herd as herd
    from ecgr.core.update import Update as Update
    from ecgr.errors import ConfigError as ConfigError
    from ecgr.errors import DataError as DataError
    from ecgr.errors import EcgrError as EcgrError
    from ecgr.errors import EnvironmentFault as EnvironmentFault
    from ecgr.errors import IntegrityError as IntegrityError
    from ecgr.errors import NotFiniteWarning as NotFiniteWarning
    from ecgr.errors import QuorumLost as QuorumLost
    from ecgr.errors import RecordingError as RecordingError
    from ecgr.experiment.config import Experiment as Experiment
    from ecgr.experiment.config import load as load
    from ecgr.runs.record import RunRecord as RunRecord
    from ecgr.runs.runner import run as run
    from ecgr.tasks.data import DATASETS as DATASETS
    from ecgr.tasks.models import MODELS as MODELS
    from ecgr.tasks.partitioners import PARTITIONERS as PARTITIONERS

_HOMES = {
    "ALGORITHMS": "algorithms",
    "Answer": "compare",
    "ConfigError": "errors",
    "DATASETS": "tasks.data",
    "DataError": "errors",
    "ECGR": "core.regulators",
    "EcgrError": "errors",
    "EnvironmentFault": "errors",
    "Experiment": "experiment.config",
    "Geometry": "core.geometry",
    "IntegrityError": "errors",
    "MODELS": "tasks.models",
    "NotFiniteWarning": "errors",
    "PARTITIONERS": "tasks.partitioners",
    "QuorumLost": "errors",
    "REGULATORS": "core.regulators",
    "Recorder": "core.recorder",
    "RecordingError": "errors",
    "Regulation": "core.geometry",
    "RunRecord": "runs.record",
    "Update": "core.update",
    "compare": "compare",
    "herd": "core.regulators",
    "load": "experiment.config",
    "run": "runs.runner",
}

__all__ = [
    "ALGORITHMS",
    "Answer",
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
    "NotFiniteWarning",
    "PARTITIONERS",
    "QuorumLost",
    "REGULATORS",
    "Recorder",
    "RecordingError",
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
