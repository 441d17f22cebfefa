"""Steps by hand: those of autograd but for rounding, for the models that qualify and no others."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ecgr.config.methods import Method
from ecgr.config.optimizers import SGD
from ecgr.simulation import by_hand, client
from ecgr.simulation.by_hand import chain, qualifies
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import play_round, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.data import Dataset
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.models import logistic, mlp
from ecgr.tasks.samples import Samples
from support.problems import TRAINED, blobs, problem, same_bits

FEATURES, ROWS = 7, 41
PARTS = [range(20), range(20, 33), range(33, 40), range(40, 41)]  # the last has one sample
MODELS: dict[str, Callable[[int], nn.Module]] = {
    "logistic": lambda outputs: logistic(features=FEATURES, outputs=outputs),
    "mlp": lambda outputs: mlp(features=FEATURES, outputs=outputs, hidden=(16, 5)),
    "one unit wide": lambda outputs: mlp(features=FEATURES, outputs=outputs, hidden=(1, 1)),
    "no bias": lambda outputs: nn.Sequential(
        nn.Linear(FEATURES, 6, bias=False), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, outputs, bias=False))
    ),
    "ReLU at both ends": lambda outputs: nn.Sequential(nn.ReLU(), nn.Linear(FEATURES, outputs), nn.ReLU()),
    "two in a row": lambda outputs: nn.Sequential(nn.Linear(FEATURES, 33), nn.Linear(33, outputs)),
    "wide": lambda outputs: mlp(features=FEATURES, outputs=outputs, hidden=(64, 32)),
}
LOSS_OUTPUTS = {"cross_entropy": 3, "bce": 1, "mse": 2}


def data(loss: str) -> Dataset:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    targets: Any = {
        "cross_entropy": np.arange(ROWS) % 3,
        "bce": np.arange(ROWS) % 2,
        "mse": rng.normal(size=(ROWS, 2)).astype(np.float32),
    }[loss]
    samples = Samples(inputs, targets)
    metrics = ("accuracy",) if loss == "cross_entropy" else ("mae",)
    return Dataset(samples, samples, {"features": FEATURES, "outputs": 1}, loss=loss, metrics=metrics)


def case(model: Callable[[int], nn.Module], loss: str = "cross_entropy", batch: int = 4, **sections: Any) -> Problem:
    torch.manual_seed(3)
    built = model(LOSS_OUTPUTS[loss])
    usual = {
        "model": {"name": lambda: built},
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 0.01},
        "federation": {"rounds": 2, "batch_size": batch, "last_batch": "keep"},
    }
    return problem(data(loss), PARTS, **{**usual, **sections})


def rounds(given: Problem) -> list[Tensor]:
    """What two rounds leave with the server and its clients."""
    engine, snapshot, found = SerialEngine(given), start(given), []
    for _ in range(2):
        outcome = play_round(given, engine, snapshot)
        snapshot = outcome.snapshot
        found += [snapshot.params, *snapshot.server.values(), torch.tensor(outcome.row["train_loss"])]
        found += [value for one in range(len(PARTS)) for value in (snapshot.clients.get(one) or {}).values()]
    return found


def of_method(method: str) -> Problem:
    made, given = Method.of(method), case(MLP)
    experiment = replace(given.experiment, correction=made.algorithm, server=made.server, regulator=made.regulator)
    return replace(given, experiment=experiment)


MLP = MODELS["mlp"]
STEPS: list[dict[str, Any]] = [
    {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0}},
    {"optimizer": {"name": "adamw", "lr": 0.01}},
    *({"regulator": {"name": "ecgr", "beta": 0.0}, "run": {"store": store}} for store in ("dense", "int8", "disk")),
]
QUALIFIED: dict[str, Callable[[], Problem]] = {
    **{name: partial(case, model) for name, model in MODELS.items()},
    **{f"{loss} of {n}": partial(case, MLP, loss, n) for loss, n in product(LOSS_OUTPUTS, (1, 5, 41))},
    **{method: partial(of_method, method) for method in [*TRAINED, "fedavg+ecgr"]},
    **{
        loss: lambda loss=loss: replace(case(MLP), loss=LOSSES[loss]())  # type: ignore[misc]
        for loss in ("balanced_softmax", "fedrs", "fedlc")
    },
    **{str(sections): partial(case, MLP, **sections) for sections in STEPS},
    "images": lambda: problem(
        blobs(41),
        PARTS,
        model={"name": lambda: mlp(features=36, classes=3)},
        federation={"rounds": 2, "batch_size": 4},
    ),
}


@pytest.mark.parametrize("name", QUALIFIED)
def test_two_rounds_lead_where_autograd_leads_but_for_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = QUALIFIED[name]()
    assert qualifies(Workspace(given))
    by_hand = rounds(given)
    monkeypatch.setattr(client, "qualifies", lambda _: False)
    monkeypatch.setattr(client, "train_by_hand", None)
    for a, b in zip(by_hand, rounds(given), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


def test_samples_that_are_made_ready_in_parts_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    given = case(MLP, federation={"rounds": 2, "batch_size": 4, "local_epochs": 2, "last_batch": "merge"})
    at_once = rounds(given)
    monkeypatch.setattr(by_hand, "SPAN", 2 * 4 * FEATURES)
    assert all(map(same_bits, at_once, rounds(given)))


def test_a_product_does_not_depend_on_where_its_operands_lie() -> None:
    rng = np.random.default_rng(0)
    shapes = [(b, i, o) for b in (1, 3, 4, 16, 33, 64) for i in (1, 13, 32, 64, 784) for o in (1, 2, 10, 64)]

    def moved(array: Any, places: int) -> Any:
        room = np.empty(array.size + places, np.float32)
        room[places:] = array.ravel()
        return room[places:].reshape(array.shape)

    for rows, inputs, outputs in shapes:
        given, slope, weight = (
            rng.normal(size=size).astype(np.float32) for size in ((rows, inputs), (rows, outputs), (outputs, inputs))
        )
        found = set()
        for places in range(8):
            x, s, w = moved(given, places), moved(slope, (3 * places) % 8), moved(weight, (5 * places) % 8)
            into = moved(np.zeros_like(weight), (7 * places) % 8)
            products = (by_hand.product(x, w.T), by_hand.product(s.T, x, into), by_hand.product(s, w))
            found.add(b"".join(one.tobytes() for one in products))
        assert len(found) == 1, (rows, inputs, outputs)


THREADS = """
import hashlib, sys
import numpy as np
from ecgr.simulation.by_hand import product
rng, seen = np.random.default_rng(0), hashlib.sha256()
for rows, inputs, outputs in [(64, 64, 64), (32, 90, 90), (128, 72, 1), (1, 95, 96), (50, 784, 10), (16, 784, 64)]:
    x, w = rng.normal(size=(rows, inputs)).astype("f"), rng.normal(size=(outputs, inputs)).astype("f")
    seen.update(product(x, w.T).tobytes())
    seen.update(product(product(x, w.T).T, x).tobytes())
sys.stdout.write(seen.hexdigest())
"""


@pytest.mark.slow
def test_a_product_does_not_depend_on_the_threads_that_numpy_may_use() -> None:
    def digest(threads: int) -> str:
        own = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": "1"}
        run = [sys.executable, "-c", THREADS]
        return subprocess.run(run, env=own, capture_output=True, check=True, text=True).stdout

    assert digest(1) == digest(4)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        return slopes[0] / 2


class Custom(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = Halved.apply(super().forward(input))  # type: ignore[no-untyped-call]
        return found


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def changed(change: Callable[[Any], object], *layers: nn.Module) -> nn.Module:
    """A model that would qualify, but for the change."""
    model = nn.Sequential(*(layers or [nn.Linear(7, 7), nn.Linear(7, 3)]))
    change(model)
    return model


SHARED = nn.Linear(7, 7)
REFUSED: dict[str, nn.Module] = {
    "a subclass": nn.Sequential(Doubled(7, 3)),
    "custom autograd": Custom(nn.Linear(7, 3)),
    "a hook": changed(lambda m: m[0].register_forward_hook(lambda module, given, found: 2 * found)),
    "a hook of a gradient": changed(lambda m: m[0].weight.register_hook(lambda slope: 2 * slope)),
    "a hook after a gradient": changed(lambda m: m[0].weight.register_post_accumulate_grad_hook(lambda p: None)),
    "another forward": changed(lambda m: setattr(m, "forward", lambda input: 2 * m[0](input))),
    "dropout": nn.Sequential(nn.Linear(7, 3), nn.Dropout(0.5)),
    "batch norm": nn.Sequential(nn.Linear(7, 3), nn.BatchNorm1d(3)),
    "a parametrisation": nn.Sequential(weight_norm(nn.Linear(7, 3))),
    "tied weights": changed(lambda m: setattr(m[1], "weight", m[0].weight), nn.Linear(7, 7), nn.Linear(7, 7)),
    "a layer twice": nn.Sequential(SHARED, SHARED, nn.Linear(7, 3)),
    "frozen weights": changed(lambda m: m[0].requires_grad_(False)),
    "a parameter that is not used": changed(lambda m: m[0].register_parameter("spare", nn.Parameter(torch.zeros(2)))),
    "float64": nn.Sequential(nn.Linear(7, 3)).double(),
    "another flatten": nn.Sequential(nn.Flatten(0), nn.Linear(7, 3)),
    "no parameters": nn.Sequential(nn.ReLU()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_model_is_left_to_autograd(name: str) -> None:
    assert chain(changed(lambda model: None)) is not None
    assert chain(REFUSED[name]) is None


def test_a_global_hook_leaves_every_model_to_autograd() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, found: None)
    try:
        assert not qualifies(Workspace(case(MLP)))
    finally:
        handle.remove()


class Mine(SGD):
    """An optimiser of a user's own."""


OTHERS: dict[str, Callable[[], Problem]] = {
    "a loss with a teacher": lambda: replace(case(MLP), loss=LOSSES["fedntd"]()),
    "a loss of the user's": lambda: replace(case(MLP), loss=lambda outputs, targets: outputs.sum()),
    "an optimiser of the user's": lambda: replace(
        case(MLP), experiment=replace(case(MLP).experiment, optimizer=Mine(lr=0.1))
    ),
    "bf16": lambda: case(MLP, run={"precision": "bf16"}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_run_is_left_to_autograd(name: str) -> None:
    assert not qualifies(Workspace(OTHERS[name]()))
