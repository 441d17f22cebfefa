"""Methods made from the tables, and problems of sixteen parameters to try them on.

A round of two clients takes a few milliseconds. Three clients of three, two and one steps, two of whom take part; the
learning rate halves every round; one layer has BatchNorm.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
from torch import nn

from ecgr.algorithms import SERVER_RULES
from ecgr.component import State
from ecgr.config.experiment import Experiment
from ecgr.config.methods import Method, parse_method
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError, DataError
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, final_state
from ecgr.simulation.workspace import Problem
from ecgr.tasks.data import Dataset
from ecgr.tasks.losses import LOSSES, check_targets
from ecgr.tasks.partition import Partition
from ecgr.tasks.samples import Samples
from support.problems import TRAINED, same_bits

VARIANTS = ["scaffold(damping=0.5)", "scaffold(damping=0.5, units=gradient, control_rate=0.4)", "fedacg(mu=0)"]

Parts = tuple[str, str, str, str]


def text_of(parts: Parts) -> str:
    """In one line."""
    algorithm, rule, regulator, loss = parts
    return f"{algorithm}[{loss}]/{rule}+{regulator}"


@cache
def pairs() -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """Algorithms and server rules that go together, and those that do not, with the reason."""
    together, apart = [], {}
    for algorithm, rule in product([*TRAINED, *VARIANTS], SERVER_RULES):
        try:
            parse_method(f"{algorithm}/{rule}")
        except ConfigError as error:
            apart[algorithm, rule] = str(error)
        else:
            together.append((algorithm, rule))
    return together, apart


def whole(algorithm: str, rule: str) -> list[str]:
    """An algorithm and a rule with every regulator and every loss."""
    return [text_of((algorithm, rule, regulator, loss)) for regulator, loss in product(REGULATORS, LOSSES)]


def covering(together: int, losses: Sequence[str] = tuple(LOSSES)) -> list[str]:
    """Few methods, in which every value (``together`` 1) or allowed pair of values (2) of the tables occurs."""

    candidates: list[Parts] = [(*pair, *rest) for pair in pairs()[0] for rest in product(REGULATORS, losses)]
    left = {parts: set(combinations(enumerate(parts), together)) for parts in candidates}
    missing = set().union(*left.values())
    chosen = []
    while missing:
        best = max(left, key=lambda parts: len(left[parts] & missing))
        missing -= left.pop(best)
        chosen.append(text_of(best))
    return chosen


PARTS = [range(6), range(6, 10), range(10, 12)]
CLASSES = 3


def model() -> nn.Module:
    """Every kind of tensor that there is, and no more."""
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, CLASSES))


def linear() -> nn.Module:
    """What is trained by hand."""
    return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, CLASSES))


@cache
def datasets() -> list[Dataset]:
    """The same inputs with classes, and with a number for each output."""
    inputs = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    labels = np.arange(12) % CLASSES
    shape = {"features": 2, "outputs": CLASSES}
    classes, numbers = Samples(inputs, labels), Samples(inputs, np.eye(CLASSES, dtype=np.float32)[labels])
    return [Dataset(classes, classes, shape), Dataset(numbers, numbers, shape, loss="mse", metrics=("mae",))]


@cache
def base(dataset: int, net: Callable[[], nn.Module] = model) -> Problem:
    """What all compositions on one kind of targets have in common."""
    experiment = Experiment.from_dict(
        {
            "model": {"name": net},
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


def tiny(text: str, net: Callable[[], nn.Module] = model) -> Problem:
    """The problem with the method of ``text``, its loss included."""
    method = Method.of(text)
    assert method.loss is not None
    name = LOSSES.name_of(method.loss)
    assert name is not None
    found = base(next(dataset for dataset in range(len(datasets())) if fits(name, dataset)), net)
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
