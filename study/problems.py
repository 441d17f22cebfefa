"""The leaderboard: which methods are compared on which problems, and the one command that runs each.

``python -m study command PROBLEM`` prints it. Every method has the same tuning budget: its learning rate is chosen from
three on seeds that no comparison uses. A server step of another length is a method of its own (two lengths are run; the
table's row is the one that scored better where learning rates were chosen).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ecgr.errors import ConfigError

TITLES: Mapping[str, str] = {
    "fedavg": "FedAvg",
    "fedavg+ecgr": "FedAvg with ECGR",
    "fedavg/average(lr=1.5)": "FedAvg, server lr 1.5",
    "fedavg/average(lr=2)": "FedAvg, server lr 2",
    "fedavgm(server_momentum=0.5)": "FedAvgM (0.5)",
    "fedacg": "FedACG",
    "fedexp": "FedExP",
    "fedprox": "FedProx",
    "fednova": "FedNova",
    "scaffold": "SCAFFOLD",
    "drift_correction": "SCAFFOLD damped, with lookahead",
    "feddyn": "FedDyn (relative)",
    "fedcm": "FedCM (repaired)",
    "fedavg[balanced_softmax]": "FedAvg, balanced softmax",
    "fedavg[fedntd]": "FedNTD",
}
METHODS = tuple(TITLES)
FOR_CLASSES = ("fedavg[balanced_softmax]", "fedavg[fedntd]")
"""Losses over the scores of several classes: not for a single output."""
LEADERBOARD = "leaderboard"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to be learnt from unlike clients; what is tuned, and how often it is run."""

    title: str
    preset: str
    rates: Sequence[float]
    seeds: int = 10
    settings: Mapping[str, object] = field(default_factory=dict)
    methods: Sequence[str] = METHODS

    @property
    def command(self) -> str:
        """What runs it."""
        changes = "".join(f" --set {key}={value}" for key, value in self.settings.items())
        rates = ",".join(f"{rate:g}" for rate in self.rates)
        methods = ",".join(self.methods)
        tune = f"--seeds {self.seeds} --tune optimizer.lr={rates}"
        return f"ecgr compare {self.preset} --methods '{methods}' {tune}{changes}"


IMAGES = (0.006, 0.015, 0.04)
MILDER, EQUAL = {"partition.alpha": 0.1}, {"partition.alpha": 1.0}
PROBLEMS: Mapping[str, Problem] = {
    "heart": Problem(
        "Heart disease at four hospitals",
        "hospitals/heart_disease",
        (0.01, 0.03, 0.1),
        seeds=20,
        methods=[method for method in METHODS if method not in FOR_CLASSES],
    ),
    "fashion001": Problem("Fashion-MNIST, alpha 0.01", "study/leaderboard/fashion_mnist", IMAGES),
    "mnist001": Problem("MNIST, alpha 0.01", "study/leaderboard/mnist", IMAGES),
    "fashion01": Problem("Fashion-MNIST, alpha 0.1", "study/leaderboard/fashion_mnist", IMAGES, settings=MILDER),
    "mnist01": Problem("MNIST, alpha 0.1", "study/leaderboard/mnist", IMAGES, settings=MILDER),
    "fashion1": Problem("Fashion-MNIST, alpha 1", "study/leaderboard/fashion_mnist", IMAGES, settings=EQUAL),
    "mnist1": Problem("MNIST, alpha 1", "study/leaderboard/mnist", IMAGES, settings=EQUAL),
    "fashion100": Problem(
        "Fashion-MNIST, 100 clients, a tenth of them a round, 5 epochs", "study/leaderboard/fashion_mnist_100", IMAGES
    ),
    "cifar01": Problem("CIFAR-10, alpha 0.1, GroupNorm", "study/leaderboard/cifar10", (0.01, 0.03, 0.1)),
    "cifar01batch": Problem(
        "CIFAR-10, alpha 0.1, BatchNorm",
        "study/leaderboard/cifar10",
        (0.01, 0.03, 0.1),
        settings={"model.norm": "batch", "federation.last_batch": "merge"},
    ),
    "shakespeare": Problem("Tiny Shakespeare by speaker", "text/shakespeare", (0.1, 0.3, 1.0)),
}


def problem(name: str) -> Problem:
    """By its name, or one line that says which there are."""
    if name not in PROBLEMS:
        raise ConfigError(f"study: no problem {name!r}; there are {', '.join(PROBLEMS)}")
    return PROBLEMS[name]
