"""The recorder sees exactly what any optimiser does to any model, and leaves no trace."""

import gc
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

import ecgr
from ecgr.core.geometry import Geometry, Regulation, identity
from ecgr.core.regulators import REGULATORS, Plain
from ecgr.core.vectors import ParamSpec
from oracles.herding import ecgr_update, greedy_herding
from support.loops import STEPS, Loop, backward, batches, check_exact, displacements, hooks, mlp, train
from support.problems import same_bits, small_net

MakeOptimizer = Callable[[Iterable[Tensor]], Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: Adam(p, lr=0.01),
    "adamw": lambda p: AdamW(p, lr=0.01),
    "foreach": lambda p: SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "groups": lambda p: SGD([{"params": [q], "lr": 0.1 * q.ndim} for q in p], momentum=0.9),
}


def recorded(model: nn.Module, optimizer: Optimizer | None = None) -> ecgr.Recorder:
    """The training of ``model``, by plain SGD if nothing else is given."""
    optimizer = optimizer or SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer) as recorder:
        train(model, optimizer)
    return recorder


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_displacements_are_those_of_a_training_that_nobody_records_and_regulated_as_the_oracle_does(kind: str) -> None:
    """An explicit second training run keeps every intermediate model."""
    model, twin = mlp(), mlp()
    recorder = recorded(model, OPTIMIZERS[kind](model.parameters()))
    spec = ParamSpec.of(twin)
    other = OPTIMIZERS[kind](twin.parameters())
    path = [spec.read(twin)]
    for x, y in batches():
        other.zero_grad()
        backward(nn.functional.cross_entropy(twin(x), y))
        other.step()
        path.append(spec.read(twin))
    assert recorder.steps == STEPS
    assert same_bits(spec.read(model), path[-1])
    for recorded_step, before, after in zip(displacements(recorder), path, path[1:], strict=False):
        assert torch.equal(recorded_step, before - after)
    for plain in (recorder.plain, recorder.regulated(ecgr.ECGR(beta=1.0)).flat, recorder.regulated(Plain()).flat):
        assert same_bits(plain, path[0] - path[-1])
    steps = torch.stack(displacements(recorder)).double()
    assert torch.allclose(steps.sum(dim=0).float(), recorder.plain, rtol=0, atol=1e-6)
    update = recorder.regulated(ecgr.ECGR(beta=0.2))
    assert list(update.regulation.kept) == greedy_herding(steps.numpy(), STEPS // 2)
    expected = torch.from_numpy(ecgr_update(steps.numpy(), 0.2)).float()
    assert float((update.flat - expected).norm()) <= 1e-5 * float(expected.norm())
    assert float(update.flat.norm()) == pytest.approx(float(recorder.plain.norm()), rel=1e-5)
    assert not torch.equal(update.flat, recorder.plain)


def test_a_step_with_a_closure_is_one_displacement() -> None:
    """LBFGS evaluates the closure several times within one step."""
    model = mlp()
    start = ParamSpec.of(model).read(model)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    x, y = batches(1)[0]
    calls = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        backward(loss)
        calls.append(1)
        return float(loss.detach())

    with ecgr.Recorder(model, optimizer) as recorder:
        for _ in range(3):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert len(calls) > 3
    assert recorder.steps == 3
    assert same_bits(recorder.plain, start - ParamSpec.of(model).read(model))
    assert float(recorder.regulated(ecgr.ECGR()).flat.norm()) == pytest.approx(float(recorder.plain.norm()), rel=1e-5)


def test_mixed_dtypes_are_recorded_in_the_widest_and_written_back_in_their_own() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 6)
            self.second = nn.Linear(6, 6).to(torch.bfloat16)
            self.third = nn.Linear(6, 2).double()

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.second(torch.tanh(self.first(x)).to(torch.bfloat16))
            return self.third(torch.tanh(hidden).double())  # type: ignore[no-any-return]

    torch.manual_seed(1)
    model = Mixed()
    dtypes = [p.dtype for p in model.parameters()]
    start = [p.detach().clone() for p in model.parameters()]
    recorder = recorded(model, SGD(model.parameters(), lr=0.25, momentum=0.9))
    assert recorder.plain.dtype == torch.float64
    moved = torch.cat(
        [(a.double() - b.detach().double()).view(-1) for a, b in zip(start, model.parameters(), strict=True)]
    )
    assert torch.equal(recorder.plain, moved)
    update = recorder.regulated(ecgr.ECGR())
    assert float(update.flat.norm()) == pytest.approx(float(recorder.plain.norm()), rel=1e-5)
    update.apply_(model)
    assert [p.dtype for p in model.parameters()] == dtypes
    for parameter, piece in zip(model.parameters(), update.spec.views(update.start - update.flat), strict=True):
        assert torch.equal(parameter.detach(), piece.to(parameter.dtype))


@pytest.mark.parametrize("kind", ["momentum", "adamw"])
def test_with_batchnorm_parameters_are_set_and_buffers_left_alone(kind: str) -> None:
    torch.manual_seed(2)
    model = small_net(classes=2)
    optimizer = OPTIMIZERS[kind](model.parameters())
    with ecgr.Recorder(model, optimizer) as recorder:
        for x, y in batches():
            optimizer.zero_grad()
            backward(nn.functional.cross_entropy(model(x.view(8, 1, 2, 2)), y))
            optimizer.step()
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    assert int(buffers["1.num_batches_tracked"]) == STEPS
    update = recorder.regulated(ecgr.ECGR(beta=0.2))
    assert not any("running" in name or "num_batches" in name for name in update.as_state_dict())
    update.apply_(model)
    assert all(torch.equal(b, buffers[name]) for name, b in model.named_buffers())
    spec = ParamSpec.of(model)
    assert torch.equal(spec.read(model), update.start - update.flat)
    assert float(update.flat.norm()) == pytest.approx(float(recorder.plain.norm()), rel=1e-5)


def test_the_hook_is_gone_after_the_block_and_after_an_exception() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    own = optimizer.register_step_post_hook(lambda *_: None)
    before = hooks(optimizer)
    with ecgr.Recorder(model, optimizer) as recorder:
        assert hooks(optimizer) == before + 2
        train(model, optimizer)
    assert hooks(optimizer) == before
    train(model, optimizer)
    assert recorder.steps == STEPS
    failing = ecgr.Recorder(model, optimizer)
    with pytest.raises(ZeroDivisionError), failing:
        train(model, optimizer, steps=2)
        raise ZeroDivisionError
    assert hooks(optimizer) == before
    assert failing.steps == 2
    assert torch.isfinite(failing.regulated(ecgr.ECGR()).flat).all()
    own.remove()


def test_a_recorder_can_be_used_for_round_after_round() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    recorder = ecgr.Recorder(model, optimizer)
    for steps in (2, 5):
        start = ParamSpec.of(model).read(model)
        with recorder:
            train(model, optimizer, steps=steps)
        end = ParamSpec.of(model).read(model)
        train(model, optimizer, steps=1)  # outside of the block: no part of it
        assert recorder.steps == steps
        assert same_bits(recorder.plain, start - end)
        assert same_bits(recorder.regulated(ecgr.ECGR()).start, start)


def test_parameters_that_are_frozen_tied_unused_or_of_no_optimiser() -> None:
    """Frozen ones are not recorded, tied ones once; what nothing moves has zeros."""
    first, last, frozen, head = (nn.Linear(4, n, bias=n == 2) for n in (4, 4, 4, 2))
    last.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), last, frozen.requires_grad_(False), head)
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    before = frozen.weight.clone()
    recorder = recorded(model, AdamW([first.weight, model.get_parameter("unused"), head.weight], lr=0.01))
    update = recorder.regulated(ecgr.ECGR())
    named = update.as_state_dict()
    assert set(named) == {"unused", "0.weight", "4.weight", "4.bias"}
    assert [name for name, piece in named.items() if (piece == 0).all()] == ["unused", "4.bias"]
    update.apply_(model)
    assert last.weight is first.weight
    assert torch.equal(update.spec.read(model), update.start - update.flat)
    assert torch.equal(frozen.weight, before)


def test_asking_without_a_recorded_step_says_what_to_do() -> None:
    model = mlp()
    recorder = ecgr.Recorder(model, SGD(model.parameters(), lr=0.1))
    with recorder, pytest.raises(RuntimeError, match="already recording"):
        recorder.__enter__()
    assert recorder.steps == 0
    with pytest.raises(RuntimeError, match="train inside the `with Recorder"):
        recorder.regulated(ecgr.ECGR())
    with recorder, pytest.raises(RuntimeError, match="no optimiser step was recorded"):
        recorder.regulated(ecgr.ECGR())


@pytest.mark.parametrize("name", sorted(REGULATORS))
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_training_that_diverges_gives_the_plain_update_and_says_so(name: str, bad: float) -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer) as recorder:
        train(model, optimizer, steps=2)
        next(iter(model.parameters())).grad = torch.full((6, 4), bad)
        optimizer.step()
    with pytest.warns(ecgr.NotFiniteWarning, match="lower the learning rate"):
        update = recorder.regulated(REGULATORS[name]())
    assert not torch.isfinite(update.flat).all()
    assert same_bits(update.flat, recorder.plain)
    assert update.regulation.metrics["unregulated"] == 1.0


def test_updates_near_the_largest_float32_are_still_regulated() -> None:
    """Squares of 1e30 overflow float32 but not the float64 sums."""
    model = nn.Linear(3, 1, bias=False)
    optimizer = SGD(model.parameters(), lr=1.0)
    with ecgr.Recorder(model, optimizer) as recorder:
        for i in range(4):
            model.weight.grad = torch.tensor([[1e30 * (i + 1), -1e30, 1e29 * i * i]])
            optimizer.step()
    update = recorder.regulated(ecgr.ECGR())
    assert update.regulation.metrics["unregulated"] == 0.0
    assert torch.isfinite(update.flat).all()
    assert float(update.flat.double().norm()) == pytest.approx(float(recorder.plain.double().norm()), rel=1e-5)


def test_weights_alone_are_enough_of_a_regulator_and_the_length_is_restored_from_the_steps() -> None:
    model = mlp()
    recorder = recorded(model)

    def last(geometry: Geometry) -> Regulation:
        weights = torch.zeros(geometry.steps, dtype=torch.float64)
        weights[-1] = 0.5
        return Regulation(weights, restore=True, kept=(geometry.steps - 1,))

    update, step = recorder.regulated(last), displacements(recorder)[-1]
    factor = float(recorder.plain.double().norm() / step.double().norm())
    assert torch.allclose(update.flat, step * factor, rtol=1e-5)
    assert update.regulation.coefficients[-1] == pytest.approx(factor, rel=1e-6)


def test_a_recorder_that_nobody_holds_any_more_is_gone_at_once_and_its_steps_with_it() -> None:
    """A ring of references would keep the steps of many clients until Python looks for rings."""
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    gc.disable()
    try:
        steps = ecgr.Recorder(model, optimizer)
        with steps:
            train(model, optimizer)
        steps.regulated(ecgr.ECGR())
        gone = weakref.ref(steps)
        del steps
        assert gone() is None
    finally:
        gc.enable()


# Precision


@pytest.mark.parametrize("store", ["dense", "disk"])
def test_a_float64_model_at_a_small_learning_rate_is_recorded_in_float64(store: str) -> None:
    """In float32 such steps vanish beside the weights: a step of 1e-9 beside a weight of 0.4 is lost in rounding."""
    loop = Loop(mlp().double())
    optimizer = SGD(loop.model.parameters(), lr=1e-9, momentum=0.9)
    with loop.record(optimizer, store=store):
        loop.step(optimizer, 5)
    check_exact(loop)
    oracle = torch.stack(loop.oracle)
    assert loop.recorder is not None
    update = loop.recorder.regulated(ecgr.ECGR(beta=0.2))
    weights = update.regulation.weights
    expected = weights @ oracle
    expected *= oracle.sum(dim=0).norm() / expected.norm()
    assert update.flat.dtype == update.start.dtype == torch.float64
    assert float((update.flat - expected).norm()) <= 1e-9 * float(expected.norm())
    update.apply_(loop.model)
    assert torch.equal(loop.flat(), update.start - update.flat)
    assert all(t.dtype == torch.float64 for t in update.as_state_dict().values())


def test_a_store_of_fewer_bits_keeps_small_float64_steps() -> None:
    loop = Loop(mlp().double())
    optimizer = SGD(loop.model.parameters(), lr=1e-9)
    with loop.record(optimizer, store="int8") as recorder:
        loop.step(optimizer, 5)
    update = recorder.regulated(ecgr.ECGR())
    assert update.flat.dtype == torch.float64
    assert float(update.flat.norm()) == pytest.approx(float(torch.stack(loop.oracle).sum(dim=0).norm()), rel=1e-6)


@pytest.mark.parametrize("store", ["dense", "int8"])
def test_gamma_in_the_metrics_is_the_factor_that_was_applied(store: str) -> None:
    """A lossy store only estimates inner products; the length is restored from the vectors themselves."""
    loop = Loop(mlp())
    optimizer = SGD(loop.model.parameters(), lr=0.1)
    with loop.record(optimizer, store=store) as recorder:
        loop.step(optimizer, 6)
    update = recorder.regulated(ecgr.ECGR(beta=0.2))
    weighted = recorder._store.combine(update.regulation.weights)
    assert torch.equal(weighted * update.regulation.metrics["gamma"], update.flat)


# The update


def test_an_update_is_shown_in_one_line() -> None:
    update = recorded(mlp()).regulated(ecgr.ECGR())
    norm = f"{float(update.flat.double().norm()):.4g}"
    assert repr(update) == f"Update(44 numbers in float32, {STEPS // 2} of {STEPS} steps kept, norm {norm})"


@pytest.mark.parametrize(
    ("regulator", "line"),
    [
        ("ecgr", "regulator: 'ecgr' is none; give an object"),
        (ecgr.ECGR, "regulator: <class '.*ECGR'> is none; give an object"),
        (lambda geometry: 3, "regulator: <lambda> gives int; give an ecgr.Regulation"),
        (lambda geometry: identity(99), rf"weights of shape \(99,\); give one for each of {STEPS} steps"),
    ],
)
def test_what_is_no_regulator_is_refused_in_one_line(regulator: Any, line: str) -> None:
    steps = recorded(mlp())
    with pytest.raises(ecgr.ConfigError, match=line):
        steps.regulated(regulator)


def test_applying_twice_or_to_a_changed_model_sets_the_same_values() -> None:
    model = mlp()
    update = recorded(model).regulated(ecgr.ECGR())
    for _ in range(2):
        update.apply_(model)
        values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        assert same_bits(values, update.start - update.flat)
        train(model, SGD(model.parameters(), lr=1.0), steps=2)
