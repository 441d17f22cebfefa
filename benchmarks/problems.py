"""Problems of a given size with random images: the cost of a step does not depend on what is in a picture."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ecgr.config.experiment import Experiment, load
from ecgr.simulation.client import ClientJob
from ecgr.simulation.engines import Engine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import play_round, round_jobs, start
from ecgr.simulation.workspace import Problem
from ecgr.tasks.data import Dataset, image_dataset
from ecgr.tasks.samples import Samples

SHAPES = {"lenet": (1, 28, 28), "cnn": (3, 32, 32), "resnet18": (3, 32, 32)}


def random_dataset(samples: int, shape: tuple[int, ...], *, test: int = 200, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)

    def split(count: int) -> Samples:
        images = rng.integers(0, 256, size=(count, *shape), dtype=np.uint8)
        return Samples(images, rng.integers(0, 10, size=count))

    names = tuple(str(i) for i in range(10))
    return image_dataset(split(samples), split(test), names, mean=(0.5,) * shape[0], std=(0.5,) * shape[0])


def problem(
    model: str, *, samples: int, clients: int = 1, batch_size: int = 128, test: int = 200, **changes: object
) -> Problem:
    """An experiment on random images, with ECGR; ``changes`` are config keys with ``__`` for the dot."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    experiment = Experiment.from_dict({}).replace(
        {
            "model.name": model,
            "regulator.name": "ecgr",
            "partition.name": "iid",
            "partition.clients": min(clients, 1000),  # the built-in digits, whose size is checked, are not used
            "partition.min_batches": 0,
            "federation.batch_size": batch_size,
            **keys,
        }
    )
    if clients > 1000:
        object.__setattr__(experiment.partition, "clients", clients)
    return prepare(experiment, random_dataset(samples, SHAPES[model], test=test))


def one_job(chosen: Problem) -> ClientJob:
    """The first client's work in the first round."""
    return round_jobs(chosen, start(chosen))[0]


def rounds_on(engine: Engine, chosen: Problem) -> Callable[[], dict[str, Any]]:
    """A function that plays one round after the other, and gives its row of the record."""
    snapshot = start(chosen)

    def play() -> dict[str, Any]:
        nonlocal snapshot
        outcome = play_round(chosen, engine, snapshot)
        snapshot = outcome.snapshot
        return outcome.row

    return play


HOSPITALS = (242, 98, 235, 160)
"""Training samples of four clients, as heart disease has them."""


def small_problem(name: str) -> Problem:
    """``logistic`` or ``mlp`` (13-16-1) on four clients of random rows, or the ``demo``'s own, by plain FedAvg."""
    plain = {"algorithm.name": "fedavg", "regulator.name": "none"}
    if name == "demo":
        experiment = load(name, plain)
        return prepare(experiment, experiment.source.load())
    rng = np.random.default_rng(0)

    def rows(count: int) -> Samples:
        inputs = rng.normal(size=(count, 13)).astype(np.float32)
        return Samples(inputs, (inputs[:, 0] + rng.normal(size=count) > 0).astype(np.int64), np.arange(count) % 4)

    hidden = {"model.hidden": [16]} if name == "mlp" else {}
    changes = {"model.name": name, **hidden, "partition.name": "groups", "partition.clients": None}
    experiment = Experiment.from_dict({}).replace(
        {**plain, **changes, "optimizer.lr": 0.03, "federation.batch_size": 16}
    )
    train = rows(sum(HOSPITALS))
    owners = np.repeat(np.arange(len(HOSPITALS)), HOSPITALS)
    train = Samples(train.inputs, train.targets, owners)
    data = Dataset(train, rows(185), {"features": 13, "outputs": 1}, loss="bce", metrics=("accuracy", "auc"))
    return prepare(experiment, data)
