"""Digits, and a thirty-second of MNIST, for a small network: what a few labelled samples at the server are worth.

    ecgr compare examples/server_samples.py:digits --methods "fedavg,fedavg+server_steps" --rounds 60 \\
        --set data.server_samples=200 --no-references
"""

import numpy as np
from torch import nn

import ecgr
from ecgr.tasks.data import DATASETS


def network() -> nn.Module:
    """784 pixels, 64 hidden units, ten classes."""
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def task(name: str, share: int) -> ecgr.Experiment:
    """One in ``share`` images of a set, pixels from -1 to 1, over ten clients of whom most hold one or two classes."""
    data = DATASETS[name]().load()

    def half(samples: ecgr.Samples) -> tuple[np.ndarray, np.ndarray]:
        inputs = np.asarray(samples.inputs[::share], dtype=np.float32).reshape(-1, 784) / 127.5 - 1
        return inputs, samples.targets[::share]

    made = ecgr.Task(
        model=network,
        train=half(data.train),
        test=half(data.test),
        clients=10,
        partition=ecgr.Dirichlet(alpha=0.05),
        name=f"server-{name}",
    )
    return ecgr.load(
        made, {"federation.rounds": 60, "federation.batch_size": 32, "optimizer.momentum": 0.0, "optimizer.lr": 0.1}
    )


def digits() -> ecgr.Experiment:
    """1,438 digits to train on."""
    return task("digits", 1)


def mnist() -> ecgr.Experiment:
    """1,875 digits of MNIST to train on."""
    return task("mnist", 32)
