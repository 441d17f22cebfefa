"""Problems of a given size with random images: the cost of a step does not depend on what is in a picture."""

import numpy as np

from ecgr.config.experiment import Experiment
from ecgr.simulation.client import ClientJob
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import round_jobs, start
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
    """An experiment on random images; ``changes`` are config keys with ``__`` for the dot."""
    keys = {key.replace("__", "."): value for key, value in changes.items()}
    experiment = Experiment.from_dict({}).replace(
        {
            "model.name": model,
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
