"""What does differential privacy cost? Two small problems: digits at 200 writers, heart disease at 100 practices.

ecgr compare examples/private_tasks.py:digits --methods 'fedavg,fedavg+dp(clip=0.3, noise=1)'
"""

from torch import nn

import ecgr


def digits() -> ecgr.Task:
    """1,438 digits, of which each writer has about seven, not of all classes; a linear layer on 49 means of pixels."""
    data = ecgr.load("quickstart").source.load()
    train, test = ((half.inputs.reshape(-1, 7, 4, 7, 4).mean((2, 4)).reshape(-1, 49).astype("float32") / 255,
                    half.targets) for half in (data.train, data.test))  # fmt: skip
    return ecgr.Task(model=lambda: nn.Linear(49, 10), train=train, test=test, clients=200, name="private-digits",
                     partition=ecgr.PARTITIONERS["dirichlet"](alpha=1.0))  # fmt: skip


def heart() -> ecgr.Task:
    """736 patients, of whom each practice has about seven; ill or not, logistic regression, AUC decides."""
    data = ecgr.load("hospitals/heart_disease").source.load()
    return ecgr.Task(model=lambda: nn.Linear(data.train.inputs.shape[1], 1), clients=100, loss=ecgr.BCE(),
                     train=(data.train.inputs, data.train.targets), test=(data.test.inputs, data.test.targets),
                     metrics=["auc"], name="private-heart")  # fmt: skip
