"""Problems of sixteen parameters, one for every composition: a round of two clients takes a few milliseconds.

Three clients of three, two and one steps, two of whom take part; the learning rate halves every round; one layer has
BatchNorm. They start from one prepared problem for each kind of targets, so that a composition costs its training.
"""

from dataclasses import replace
from functools import cache

import numpy as np
from torch import nn

from ecgr.component import State
from ecgr.config.experiment import Experiment
from ecgr.config.methods import Method
from ecgr.errors import DataError
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, final_state
from ecgr.simulation.workspace import Problem
from ecgr.tasks.data import Dataset
from ecgr.tasks.losses import LOSSES, check_targets
from ecgr.tasks.partition import Partition
from ecgr.tasks.samples import Samples
from support.problems import same_bits

PARTS = [range(6), range(6, 10), range(10, 12)]
CLASSES = 3


def model() -> nn.Module:
    """Every kind of tensor that there is, and no more."""
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, CLASSES))


@cache
def datasets() -> list[Dataset]:
    """The same inputs with classes, and with a number for each output."""
    inputs = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    labels = np.arange(12) % CLASSES
    shape = {"features": 2, "outputs": CLASSES}
    classes, numbers = Samples(inputs, labels), Samples(inputs, np.eye(CLASSES, dtype=np.float32)[labels])
    return [Dataset(classes, classes, shape), Dataset(numbers, numbers, shape, loss="mse", metrics=("mae",))]


@cache
def base(dataset: int) -> Problem:
    """What all compositions on one kind of targets have in common."""
    experiment = Experiment.from_dict(
        {
            "model": {"name": model},
            "partition": {"name": "iid", "clients": len(PARTS), "min_batches": 0},
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
            "schedule": {"name": "step", "every": 1, "factor": 0.5},
            "federation": {"rounds": 2, "batch_size": 2, "last_batch": "merge", "participation": 0.67},
        }
    )
    return replace(prepare(experiment, datasets()[dataset]), partition=Partition.of([list(part) for part in PARTS]))


def fits(loss: str, dataset: int) -> bool:
    """Whether the loss takes these targets."""
    try:
        check_targets(LOSSES[loss](), "train", datasets()[dataset].train.targets, (CLASSES,))
    except DataError:
        return False
    return True


def tiny(text: str) -> Problem:
    """The problem with the method of ``text``, its loss included."""
    method = Method.of(text)
    assert method.loss is not None
    name = LOSSES.name_of(method.loss)
    assert name is not None
    found = base(next(dataset for dataset in range(len(datasets())) if fits(name, dataset)))
    experiment = replace(
        found.experiment,
        correction=method.algorithm,
        server=method.server,
        regulator=method.regulator,
        loss=method.loss,
    )
    return replace(found, experiment=experiment, loss=method.loss)


def difference(problem: Problem, a: Snapshot, b: Snapshot, *, clients: bool = True) -> list[str]:
    """What is not the same to the bit: the model handed out, where clients start, what server and clients remember."""
    pairs: dict[str, tuple[State, State]] = {
        "start": ({"": a.params}, {"": b.params}),
        "model": (final_state(problem, a), final_state(problem, b)),
        "server": (a.server, b.server),
    }
    if clients:
        pairs |= {f"client {c}": (a.clients.get(c) or {}, b.clients.get(c) or {}) for c in range(len(PARTS))}
    return [
        f"{of}: {name}"
        for of, (left, right) in pairs.items()
        for name in left.keys() | right.keys()
        if not (name in left and name in right and same_bits(left[name], right[name]))
    ]
