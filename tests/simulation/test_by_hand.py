"""Steps by hand: those of autograd but for rounding, for the models that qualify and no others."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ecgr.config.methods import Method
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


def near_autograd(given: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds lead where the reference leads, but for rounding."""
    assert qualifies(Workspace(given))
    by_hand = rounds(given)
    with monkeypatch.context() as patch:
        patch.setattr(client, "qualifies", lambda _: False)
        patch.setattr(client, "train_by_hand", None)
        reference = rounds(given)
    assert len(by_hand) == len(reference)
    for a, b in zip(by_hand, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("model", MODELS)
def test_rounds_of_every_model_are_those_of_autograd_but_for_rounding(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    near_autograd(case(MODELS[model]), monkeypatch)


@pytest.mark.parametrize("loss", LOSS_OUTPUTS)
@pytest.mark.parametrize("batch", [1, 5, 41])
def test_rounds_of_every_loss_are(loss: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    near_autograd(case(MODELS["mlp"], loss, batch), monkeypatch)


@pytest.mark.parametrize("method", [*TRAINED, "fedavg+ecgr"])
def test_rounds_of_every_method_are(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Method.of(method)
    given = case(MODELS["mlp"])
    experiment = replace(given.experiment, correction=made.algorithm, server=made.server, regulator=made.regulator)
    near_autograd(replace(given, experiment=experiment), monkeypatch)


@pytest.mark.parametrize("loss", ["balanced_softmax", "fedrs", "fedlc"])
def test_rounds_of_losses_that_depend_on_the_client_are(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    near_autograd(replace(case(MODELS["mlp"]), loss=LOSSES[loss]()), monkeypatch)


@pytest.mark.parametrize("optimizer", [{"momentum": 0.0}, {"name": "adamw", "lr": 0.01}])
def test_rounds_of_every_optimiser_are(optimizer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    near_autograd(case(MODELS["mlp"], optimizer={"name": "sgd", "lr": 0.1, **optimizer}), monkeypatch)


@pytest.mark.parametrize("store", ["dense", "int8", "disk"])
def test_recorded_steps_are(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    near_autograd(case(MODELS["mlp"], regulator={"name": "ecgr", "beta": 0.0}, run={"store": store}), monkeypatch)


def test_rounds_on_images_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"name": lambda: mlp(features=36, classes=3)}
    near_autograd(problem(blobs(41), PARTS, model=model, federation={"rounds": 2, "batch_size": 4}), monkeypatch)


def test_samples_that_are_made_ready_in_parts_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    given = case(MODELS["mlp"], federation={"rounds": 2, "batch_size": 4, "local_epochs": 2, "last_batch": "merge"})
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


class Doubled(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


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


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 3))
    model[0].register_forward_hook(lambda module, given, found: 2 * found)
    return model


def hooked_gradient() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 3))
    model[0].weight.register_hook(lambda slope: 2 * slope)  # type: ignore[operator]
    return model


def hooked_after() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 3))
    model[0].weight.register_post_accumulate_grad_hook(lambda p: None)  # type: ignore[operator]
    return model


def replaced_forward() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 3))
    model.forward = lambda input: 2 * model[0](input)  # type: ignore[method-assign]
    return model


def tied() -> nn.Module:
    first, second = nn.Linear(7, 7), nn.Linear(7, 7)
    second.weight = first.weight
    return nn.Sequential(first, second, nn.Linear(7, 3))


def twice() -> nn.Module:
    layer = nn.Linear(7, 7)
    return nn.Sequential(layer, layer, nn.Linear(7, 3))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 3))
    model[0].requires_grad_(False)
    return model


def spare() -> nn.Module:
    model = nn.Sequential(nn.Linear(7, 3))
    model[0].register_parameter("spare", nn.Parameter(torch.zeros(2)))
    return model


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "a subclass": lambda: nn.Sequential(Doubled(7, 3)),
    "custom autograd": lambda: Custom(nn.Linear(7, 3)),
    "a hook": hooked,
    "a hook of a gradient": hooked_gradient,
    "a hook after a gradient": hooked_after,
    "another forward": replaced_forward,
    "dropout": lambda: nn.Sequential(nn.Linear(7, 3), nn.Dropout(0.5)),
    "batch norm": lambda: nn.Sequential(nn.Linear(7, 3), nn.BatchNorm1d(3)),
    "a parametrisation": lambda: nn.Sequential(weight_norm(nn.Linear(7, 3))),
    "tied weights": tied,
    "a layer twice": twice,
    "frozen weights": frozen,
    "a parameter that is not used": spare,
    "float64": lambda: nn.Sequential(nn.Linear(7, 3)).double(),
    "another flatten": lambda: nn.Sequential(nn.Flatten(0), nn.Linear(7, 3)),
    "no parameters": lambda: nn.Sequential(nn.ReLU()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_model_is_left_to_autograd(name: str) -> None:
    assert chain(REFUSED[name]()) is None


def test_a_global_hook_leaves_every_model_to_autograd() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, found: None)
    try:
        assert chain(nn.Sequential(nn.Linear(7, 3))) is None
    finally:
        handle.remove()
    assert chain(nn.Sequential(nn.Linear(7, 3))) is not None


OTHERS: dict[str, Callable[[], Problem]] = {
    "a loss with a teacher": lambda: replace(case(MODELS["mlp"]), loss=LOSSES["fedntd"]()),
    "a loss of the user's": lambda: replace(case(MODELS["mlp"]), loss=lambda outputs, targets: outputs.sum()),
    "bf16": lambda: case(MODELS["mlp"], run={"precision": "bf16"}),
    "dropout": lambda: case(lambda outputs: nn.Sequential(nn.Linear(FEATURES, outputs), nn.Dropout(0.5))),
    "batch norm, whose result depends on who else is in the batch": lambda: case(
        lambda outputs: nn.Sequential(nn.Linear(FEATURES, outputs), nn.BatchNorm1d(outputs)), federation={"rounds": 2}
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_run_is_left_to_autograd(name: str) -> None:
    assert not qualifies(Workspace(OTHERS[name]()))


def test_an_optimiser_that_is_not_known_is_left_to_autograd() -> None:
    class Mine(type(case(MODELS["mlp"]).experiment.optimizer)):  # type: ignore[misc]
        """A user's own."""

    given = case(MODELS["mlp"])
    experiment = replace(given.experiment, optimizer=Mine(lr=0.1))
    assert not qualifies(Workspace(replace(given, experiment=experiment)))
