"""What staying at home and a few last steps are worth, on clients' own data: `docs/guide/personal.md`.

    python -m study.personal OUT [PROBLEM …]

Every problem's comparison lies in ``OUT/PROBLEM``; finished runs are not made again. `PROBLEMS` says what they are.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import ecgr
from ecgr.tasks.data import DATASETS

METHODS = ["fedavg", "fedavg+finetune(steps=10)", "fedavg+local(part=norm)", "fedavg+local(part=head)"]
RATE, ROUNDS = 0.06, 15
"""One rate for every method: nothing is tuned."""
CLIENTS = 8
SIDE = 8

Pictures = NDArray[np.float32]


def body(features: int, outputs: int) -> nn.Module:
    """A hidden layer with BatchNorm."""
    return nn.Sequential(nn.Linear(features, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, outputs))


def blurred(pictures: Pictures) -> Pictures:
    """The mean of each pixel and its eight neighbours."""
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)), mode="edge")
    nine = [padded[:, i : i + SIDE, j : j + SIDE] for i in range(3) for j in range(3)]
    mean: Pictures = np.mean(nine, axis=0, dtype=np.float32)
    return mean


LOOKS: Mapping[str, Callable[[Pictures], Pictures]] = {
    "as they are": lambda x: x,
    "inverted": lambda x: -x,
    "blurred": blurred,
    "dark": lambda x: 0.3 * x - 0.7,
    "bright": lambda x: 0.3 * x + 0.7,
    "inverted and blurred": lambda x: blurred(-x),
    "inverted and dark": lambda x: -0.3 * x - 0.7,
    "half inverted": lambda x: np.concatenate([-x[:, :4], x[:, 4:]], axis=1),
}
"""How the pictures of each client look: the same digits to everybody, from another camera."""


def looks() -> ecgr.Task:
    """1,797 digits, the same classes at eight clients, each of whom sees them in its own way."""
    data = DATASETS["digits"](table=True).load()
    x = np.concatenate([data.train.inputs, data.test.inputs]).reshape(-1, SIDE, SIDE)
    y = np.concatenate([data.train.targets, data.test.targets])
    clients = np.random.default_rng(0).permutation(len(y)) % CLIENTS
    for client, look in enumerate(LOOKS.values()):
        x[clients == client] = look(x[clients == client])
    flat = x.reshape(len(x), -1)
    few = (flat[:2], y[:2])  # every client is tested on its own: nobody is scored on these
    return ecgr.Task(lambda: body(SIDE * SIDE, 10), (flat, y), few, clients=clients, name="looks")


def labels() -> ecgr.Task:
    """The same digits at ten clients with other classes each (Dirichlet 0.1)."""
    data = DATASETS["digits"](table=True).load()
    split = ecgr.PARTITIONERS["dirichlet"](alpha=0.1)
    return ecgr.Task(
        lambda: body(SIDE * SIDE, 10), (data.train.inputs, data.train.targets), (data.test.inputs, data.test.targets),
        clients=10, partition=split, name="labels",
    )  # fmt: skip


def heart() -> ecgr.Task:
    """920 patients at four hospitals (below ``$ECGR_DATA``)."""
    data = DATASETS["heart_disease"]().load()
    x, y, names = (
        np.concatenate(pair)
        for pair in zip(*((half.inputs, half.targets, half.groups) for half in (data.train, data.test)), strict=True)
    )
    features = x.shape[1]
    return ecgr.Task(
        lambda: body(features, 1), (x, y), (x[:50], y[:50]), clients=names, loss=ecgr.BCE(), metrics=["accuracy"],
        name="heart",
    )  # fmt: skip


PROBLEMS: Mapping[str, Callable[[], ecgr.Task]] = {"heart": heart, "looks": looks, "labels": labels}
SETTINGS: Mapping[str, Any] = {"partition.test_share": 0.3, "federation.last_batch": "merge"}


def main(arguments: list[str]) -> None:
    """Make the comparisons that are left, and print their answers."""
    out, *names = arguments
    for name in names or PROBLEMS:
        answer = ecgr.compare(
            PROBLEMS[name](), methods=METHODS, seeds=10, rounds=ROUNDS, lr=RATE, batch_size=16,
            settings=SETTINGS, tune=False, references=True, workers=2, out=Path(out) / name,
        )  # fmt: skip
        print(answer)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
