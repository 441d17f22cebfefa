"""A run's identity: everything that decides its numbers, which are its config, data, user code and versions."""

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecgr._version import __version__
from ecgr.code import Code, code_of
from ecgr.config.experiment import OWN, Experiment, contains_shorter
from ecgr.config.methods import Method
from ecgr.config.user_code import description, unwrap
from ecgr.errors import EcgrError
from ecgr.runs.differences import PARTITION, Identity
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.metrics import METRICS, describe
from ecgr.tasks.samples import Items
from ecgr.tasks.task import Task, TaskIdentity

if TYPE_CHECKING:
    from ecgr.simulation.workspace import Problem
    from ecgr.tasks.data.dataset import Provenance

CHECKOUT = Path(__file__).parents[3]
LABELS = (("run", "seed"), ("run", "name"))
PLACES = (("data", "root"), ("partition", "file"))
"""Where data lie; what they are is known by their hashes."""


class Identify:
    """Identities of experiments; each data set is read once, and each part's code is followed once."""

    def __init__(self) -> None:
        self._data: list[tuple[Any, Mapping[str, str]]] = []
        self._code: dict[int, tuple[Any, Code]] = {}

    def __call__(self, experiment: Experiment, files: Mapping[str, str] | None = None) -> Identity:
        """The identity of an experiment; ``files`` are the hashes of its data, if they are known already."""
        codes = {name: self._code_of(part) for name, part in user_parts(experiment)}
        code = {name: found.pieces for name, found in codes.items() if found.pieces}
        versions = {"ecgr": __version__, **{name: version(name) for name in ("torch", "numpy")}}
        versions |= {name: text for found in codes.values() for name, text in found.packages.items()}
        if code:  # byte code is that of one Python
            versions["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
        data = dict(self._files(experiment.source) if files is None else files)
        if experiment.partition.file is not None:
            with suppress(OSError):  # said when the samples are partitioned
                data[PARTITION] = sha256(Path(experiment.partition.file).read_bytes()).hexdigest()
        return {"config": experiment.to_dict(), "data": data, "code": code, "versions": versions}

    def _code_of(self, part: Any) -> Code:
        if id(part) not in self._code:
            self._code[id(part)] = (part, code_of(part))
        return self._code[id(part)][1]

    def _files(self, source: Any) -> Mapping[str, str]:
        """The hashes of a data set's files; none where it cannot be read here."""
        if isinstance(source, Task | TaskIdentity):
            return {"task": (source.identity if isinstance(source, Task) else source).sha256}
        if hasattr(source, "split_seed"):  # the same files, however they are split
            source = replace(source, split_seed=0)
        known = next((files for other, files in self._data if other == source), None)
        if known is None:
            known = {}
            with suppress(EcgrError):  # other machines may have it; where none has, each run says why
                known = source.load().files
            self._data.append((source, known))
        return known


def identity_key(identity: Identity) -> str:
    """A short hash of an identity, seed and name apart; data count by their content, not by where they lie.

    The number of rounds does not count where a longer run contains the shorter (under a constant learning rate).
    """
    config = {section: dict(values) for section, values in identity["config"].items()}
    if contains_shorter(config):
        del config["federation"]["rounds"]
    for section, key in (*LABELS, *(PLACES if set(identity["data"]) - {PARTITION} else ())):
        config[section].pop(key, None)
    return sha256(json.dumps({**identity, "config": config}, sort_keys=True).encode()).hexdigest()[:12]


def user_parts(experiment: Experiment) -> Iterator[tuple[str, Any]]:
    """What an experiment is made of that may be user code, by the section that it stands for."""
    model, source = experiment.model, experiment.source
    yield "model", model.make
    if callable(model.trainable):
        yield "trainable", model.trainable
    loss = experiment.loss
    if isinstance(source, Task):
        loss = source.loss if loss is None else loss
        for name, metric in source.metrics.items():
            yield f"metric {name}", unwrap(metric)
        if isinstance(source.train.inputs, Items):
            yield "data", source.train.inputs.read.transform
            yield "data scored", source.train.inputs.read.scored
    elif not isinstance(source, TaskIdentity):
        yield "data", source
    if loss is not None:
        yield "loss", unwrap(loss)
    for name in ("partitioner", "correction", "server", "regulator", "optimizer", "schedule"):
        yield name, unwrap(getattr(experiment, name))
    yield from experiment.parts.items()


def method_of(experiment: Experiment) -> Method:
    """The method of an experiment."""
    parts = (experiment.correction, experiment.server, experiment.regulator, experiment.loss, experiment.parts)
    return Method(*parts)


def task_facts(problem: "Problem") -> dict[str, Any]:
    """What only a model that was made can tell, and what its loss and metrics are."""
    return {
        "parameters": problem.spec.digest(),
        "loss": description(LOSSES, problem.loss),
        "metrics": {metric.name: description(METRICS, metric) for metric in problem.metrics},
    }


def manifest_of(problem: "Problem", data: "Provenance", identity: Identity) -> dict[str, Any]:
    """An allow-list of facts, nothing from the environment beyond it."""
    experiment = problem.experiment
    share = experiment.partition.test_share
    split: dict[str, Any] = {}
    if share:
        split["overlap"] = share / (1 - share)
    if experiment.data.redraw:
        split["overlap"] = len(problem.test) / len(problem.train)
    if experiment.partition.alone is not None and experiment.data.score != OWN:
        split["tested"] = len(problem.test)
    return {
        "name": experiment.run.name,
        "key": experiment.key(),
        "method": method_of(experiment).name,
        **identity,
        "task": task_facts(problem),
        "commit": commit(),
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
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
        **split,
    }


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The commit of the checkout that the package is run from, read from its files; None for an installed one."""
    folder = checkout / ".git"
    try:
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (folder / name).is_file():
            return (folder / name).read_text().strip()
        packed = (line.split() for line in (folder / "packed-refs").read_text().splitlines())
        return next((entry[0] for entry in packed if entry[1:] == [name]), None)
    except OSError:
        return None
