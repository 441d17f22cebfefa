"""Image problems of the leaderboard: reduced MNIST and Fashion-MNIST for one hidden layer, at a constant rate.

::

    ecgr compare study/boards.py:mnist --set partition.alpha=0.1 --methods …

So small that nine methods, twelve trials each and ten seeds take minutes; `experiments/study/leaderboard` has LeNet.
"""

import numpy as np
from torch import nn

import ecgr
from ecgr.tasks.data import DATASETS

TESTED = 2500


def network() -> nn.Module:
    """784 pixels, 64 hidden units, ten classes."""
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


def board(name: str, share: int, clients: int, alpha: float, **settings: float) -> ecgr.Experiment:
    """Every ``share``-th training image and 2,500 test images, pixels from -1 to 1, with Dirichlet label skew."""
    data = DATASETS[name]().load()

    def half(samples: ecgr.Samples, every: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = np.asarray(samples.inputs[::every], dtype=np.float32).reshape(-1, 784) / 127.5 - 1
        return inputs, samples.targets[::every]

    task = ecgr.Task(
        model=network,
        train=half(data.train, share),
        test=half(data.test, len(data.test) // TESTED),
        clients=clients,
        partition=ecgr.Dirichlet(alpha=alpha),
        name=f"board-{name}-{clients}",
    )
    chosen = {"federation.rounds": 100, "federation.batch_size": 16, "optimizer.momentum": 0.9, "optimizer.lr": 0.02}
    return ecgr.load(task, chosen | {key.replace("__", "."): value for key, value in settings.items()})


def mnist() -> ecgr.Experiment:
    """1,875 images of MNIST over ten clients."""
    return board("mnist", 32, 10, 0.01)


def fashion() -> ecgr.Experiment:
    """1,875 images of Fashion-MNIST over ten clients."""
    return board("fashion_mnist", 32, 10, 0.01)


def hundred() -> ecgr.Experiment:
    """7,500 images of Fashion-MNIST over a hundred clients, of whom ten take part in a round with five local epochs."""
    return board("fashion_mnist", 8, 100, 0.1, federation__participation=0.1, federation__local_epochs=5)
