"""The recorder sees exactly what any optimiser does to any model, and leaves no trace."""

import gc
import weakref
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

import ecgr
from ecgr.core.geometry import Geometry, Regulation
from ecgr.core.regulators import REGULATORS, Plain
from ecgr.core.vectors import ParamSpec
from oracles.herding import ecgr_update, greedy_herding
from support.loops import STEPS, backward, batches, displacements, hooks, mlp, train
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


def test_an_optimiser_of_a_part_of_the_model_leaves_zeros_for_the_rest() -> None:
    model = mlp()
    recorder = recorded(model, SGD(model.get_submodule("2").parameters(), lr=0.1))
    named = recorder.regulated(ecgr.ECGR()).as_state_dict()
    assert (named["0.weight"] == 0).all()
    assert (named["2.weight"] != 0).any()


def test_frozen_parameters_are_not_recorded() -> None:
    model = mlp()
    model.get_submodule("0").requires_grad_(False)
    frozen = model.get_parameter("0.weight").clone()
    recorder = recorded(model)
    update = recorder.regulated(ecgr.ECGR())
    assert set(update.as_state_dict()) == {"2.weight", "2.bias"}
    update.apply_(model)
    assert torch.equal(model.get_parameter("0.weight"), frozen)


def test_tied_weights_are_recorded_once() -> None:
    first, last = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    last.weight = first.weight
    model = nn.Sequential(first, nn.Tanh(), last)
    recorder = recorded(model)
    update = recorder.regulated(ecgr.ECGR())
    assert update.flat.shape == (16,)
    update.apply_(model)
    assert last.weight is first.weight
    assert torch.allclose(first.weight.detach().view(-1), update.start - update.flat)


def test_a_parameter_without_gradient_contributes_zeros() -> None:
    model = mlp()
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    recorder = recorded(model, AdamW(model.parameters(), lr=0.01))
    assert model.get_parameter("unused").grad is None
    assert (recorder.regulated(ecgr.ECGR()).as_state_dict()["unused"] == 0).all()


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


def test_an_update_can_be_applied_to_another_copy_of_the_model() -> None:
    model, copy = mlp(), mlp()
    recorder = recorded(model)
    update = recorder.regulated(ecgr.ECGR())
    update.apply_(copy)
    assert torch.equal(update.spec.read(copy), update.start - update.flat)
    with pytest.raises(ValueError, match=r"shape|lacks"):
        update.apply_(nn.Linear(3, 3))


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


def test_a_recorder_leaves_model_and_optimiser_otherwise_untouched() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    attributes, keys = set(vars(optimizer)), set(vars(model))
    with ecgr.Recorder(model, optimizer):
        train(model, optimizer)
    assert set(vars(optimizer)) - attributes <= {"_opt_called"}
    assert set(vars(model)) == keys
    assert not model._forward_hooks
    assert all(p.requires_grad for p in model.parameters())


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


def test_a_recorder_cannot_be_entered_twice_at_once() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    recorder = ecgr.Recorder(model, optimizer)
    with recorder:
        with pytest.raises(RuntimeError, match="already recording"):
            recorder.__enter__()
        train(model, optimizer, steps=2)
    assert recorder.steps == 2
    assert hooks(optimizer) == 0


def test_asking_without_a_recorded_step_says_what_to_do() -> None:
    model = mlp()
    recorder = ecgr.Recorder(model, SGD(model.parameters(), lr=0.1))
    assert recorder.steps == 0
    with pytest.raises(RuntimeError, match="train inside the `with Recorder"):
        recorder.regulated(ecgr.ECGR())
    with recorder, pytest.raises(RuntimeError, match="no optimiser step was recorded"):
        recorder.regulated(ecgr.ECGR())


def test_an_unknown_store_is_refused_with_the_ones_there_are() -> None:
    model = mlp()
    with pytest.raises(ValueError, match="unknown store 'cloud'; there are: dense"):
        ecgr.Recorder(model, SGD(model.parameters(), lr=0.1), store="cloud")


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
