"""Gradients by hand: the bits of autograd, for the models that qualify and no others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ecgr.algorithms import ALGORITHMS
from ecgr.config.methods import Method
from ecgr.core.regulators import REGULATORS
from ecgr.simulation import client
from ecgr.simulation.by_hand import chain, gradients_by_hand
from ecgr.simulation.client import gradients_by_autograd
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import play_round, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.data import Dataset
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.models import logistic, mlp
from ecgr.tasks.samples import Samples
from support.problems import blobs, problem, same_bits

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
    optimizer = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    federation = {"rounds": 2, "batch_size": batch, "last_batch": "keep"}
    return problem(
        data(loss), PARTS, model={"name": lambda: built}, optimizer=optimizer, federation=federation, **sections
    )


def rounds(given: Problem) -> list[Tensor]:
    """Everything that two rounds leave."""
    engine, snapshot, found = SerialEngine(given), start(given), []
    for _ in range(2):
        outcome = play_round(given, engine, snapshot)
        snapshot = outcome.snapshot
        found += [snapshot.params, *snapshot.server.values()]
        found += [value for one in range(len(PARTS)) for value in (snapshot.clients.get(one) or {}).values()]
    return found


def same_as_autograd(given: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = rounds(given)
    with monkeypatch.context() as patch:
        patch.setattr(client, "gradients_by_hand", lambda _: None)
        reference = rounds(given)
    assert len(by_hand) == len(reference)
    assert all(map(same_bits, by_hand, reference))


@pytest.mark.parametrize("loss", LOSS_OUTPUTS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 2, 5, 16, 41])
def test_the_gradients_have_the_bits_of_autograd(model: str, loss: str, batch: int) -> None:
    workspace = Workspace(case(MODELS[model], loss))
    own, spec = workspace.problem.loss, workspace.spec
    by_hand = gradients_by_hand(workspace)
    assert by_hand is not None
    reference = gradients_by_autograd(workspace, lambda held, rows: own(*workspace.batch(held, rows, training=True)))
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        spec.write(torch.randn(spec.size, generator=generator), workspace.model)
        rows = torch.randperm(ROWS, generator=generator)[:batch]
        found = []
        for gradients in (by_hand, reference):
            workspace.model.zero_grad()
            value = gradients(rows)
            found.append([value, *(p.grad for p in workspace.model.parameters() if p.grad is not None)])
        assert len(found[0]) == len(found[1]) == 1 + len(spec.names)
        assert all(map(same_bits, *found))


@pytest.mark.parametrize("method", [*ALGORITHMS, *(f"fedavg+{name}" for name in REGULATORS)])
def test_rounds_of_every_method_have_the_bits_of_autograd(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Method.of(method)
    given = case(MODELS["mlp"])
    experiment = replace(given.experiment, correction=made.algorithm, server=made.server, regulator=made.regulator)
    same_as_autograd(replace(given, experiment=experiment), monkeypatch)


@pytest.mark.parametrize("loss", LOSS_OUTPUTS)
@pytest.mark.parametrize("batch", [1, 6])
def test_rounds_of_every_loss_have_the_bits_of_autograd(loss: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    same_as_autograd(case(MODELS["mlp"], loss, batch), monkeypatch)


def test_images_have_the_bits_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    images = problem(
        blobs(41), PARTS, model={"name": lambda: mlp(features=36, classes=3)}, federation={"rounds": 2, "batch_size": 4}
    )
    assert gradients_by_hand(Workspace(images)) is not None
    same_as_autograd(images, monkeypatch)


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


@pytest.mark.parametrize("name", sorted(set(LOSSES) - set(LOSS_OUTPUTS)))
def test_any_other_loss_is_left_to_autograd(name: str) -> None:
    given = replace(case(MODELS["mlp"]), loss=LOSSES[name]())
    assert gradients_by_hand(Workspace(given)) is None


def test_bf16_is_left_to_autograd() -> None:
    assert gradients_by_hand(Workspace(case(MODELS["mlp"], run={"precision": "bf16"}))) is None
