"""run.json: what a run is, where and of what it was made; what two runs must share for one to go on with the other."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ecgr._version import __version__
from ecgr.config.experiment import Experiment
from ecgr.config.methods import Method
from ecgr.config.objects import description
from ecgr.runs.origin import commit
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.metrics import METRICS, describe

if TYPE_CHECKING:
    from ecgr.simulation.workspace import Problem
    from ecgr.tasks.data.dataset import Provenance


def identity_of(problem: "Problem", data: "Provenance") -> dict[str, Any]:
    """What two runs must share for one to go on where the other stopped."""
    return {
        "config": problem.experiment.to_dict(),
        "data": dict(data.files),
        "task": {
            "parameters": problem.spec.digest(),
            "loss": description(LOSSES, problem.loss),
            "metrics": {metric.name: description(METRICS, metric) for metric in problem.metrics},
        },
        "versions": {"ecgr": __version__, **{name: version(name) for name in ("torch", "numpy")}},
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """A line for each fact in which two runs differ, their names apart."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        where = f"{path}.{key}" if path else key
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, where)
        elif before != after and where != "config.run.name":
            lines.append(f"{where.removeprefix('config.')}: {before!r}, now {after!r}")
    return lines


def method_of(experiment: Experiment) -> Method:
    """What an experiment does about unlike clients."""
    return Method(experiment.correction, experiment.server, experiment.regulator, experiment.loss)


def manifest_of(problem: "Problem", data: "Provenance") -> dict[str, Any]:
    """An allow-list of facts, nothing from the environment beyond it."""
    experiment = problem.experiment
    return {
        "name": experiment.run.name,
        "key": experiment.key(),
        "method": method_of(experiment).name,
        **identity_of(problem, data),
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "python": platform.python_version(),
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        "notes": list(data.notes),
        "classes": list(data.classes),
        "partition": problem.class_counts.tolist(),
        "metrics": [describe(metric) for metric in problem.metrics],
    }
