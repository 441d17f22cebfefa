"""Models and optimisers inside of other libraries' wrappers are recorded as if they were bare."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.optim import SGD, Adam, Optimizer

import ecgr
from ecgr.core.guards import bare_optimizers
from ecgr.core.vectors import ParamSpec, bare_model, bare_name
from support.loops import Loop, displacements, hooks, mlp, train
from support.optimizers import AcceleratedOptimizer, Lookahead
from support.quick import quick_where

compiling = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, as it loads its compiler


@pytest.fixture
def one_process() -> Iterator[None]:
    store = distributed.HashStore()  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class Engine(nn.Module):
    """A wrapper that is none of torch's: known by the names it makes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return self.module(x)


def wrapped(kind: str, model: nn.Module) -> Any:
    if kind == "compile":
        return torch.compile(model, backend="eager")
    if kind == "both":
        return nn.DataParallel(wrapped("compile", model))
    if kind == "layer":
        model.add_module("0", wrapped("compile", model.get_submodule("0")))
        return model
    return {"parallel": nn.DataParallel, "ddp": nn.parallel.DistributedDataParallel, "engine": Engine}[kind](model)


@compiling
@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    "kind",
    quick_where(
        lambda kind: kind in {"parallel", "ddp", "engine"},  # the others load torch's compiler
        zip(["compile", "parallel", "ddp", "both", "engine", "layer"]),
    ),
)
def test_what_was_recorded_of_a_wrapped_model_applies_to_the_bare_one_and_back(kind: str) -> None:
    bare, model = mlp(), wrapped(kind, mlp())
    updates = []
    for one in (bare, model):
        optimizer = SGD(one.parameters(), lr=0.1)
        with ecgr.Recorder(one, optimizer) as recorder:
            train(one, optimizer)
        updates.append(recorder.regulated(ecgr.ECGR()))
    assert torch.equal(updates[0].flat, updates[1].flat)
    for update in updates:
        for target in (mlp(), wrapped(kind, mlp())):
            update.apply_(target)
            values = torch.cat([p.detach().reshape(-1) for p in target.parameters()])
            assert torch.equal(values, update.start - update.flat)
    if kind in {"compile", "parallel", "ddp", "both"}:
        assert list(updates[1].as_state_dict()) == list(mlp().state_dict())


def test_a_model_with_a_part_called_module_keeps_its_names() -> None:
    spec = ParamSpec.of(Engine(nn.Linear(2, 1)))
    assert spec.names == ("module.weight", "module.bias")
    engine = Engine(mlp())
    assert bare_model(engine) is engine
    assert bare_name("module.module.net._orig_mod.module.weight") == "net.module.weight"


@pytest.mark.slow
@compiling
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("before_the_block", [True, False])
def test_a_compiled_step_is_recorded(backend: str, before_the_block: bool) -> None:
    torch._dynamo.reset()
    loop = Loop()
    optimizer = Adam(loop.model.parameters(), lr=0.01)

    @torch.compile(backend=backend)
    def step() -> None:
        optimizer.step()

    class Compiled(Optimizer):
        def __init__(self) -> None: ...

        def step(self, closure: Any = None) -> Any:
            step()

    if before_the_block:
        loop.gradients()
        step()
        loop.start = loop.flat()
    with loop.record(optimizer) as recorder:
        loop.step(Compiled(), 4)
    assert recorder.steps == 4
    assert all(torch.equal(a, b) for a, b in zip(displacements(recorder), loop.oracle, strict=True))
    with pytest.raises(ecgr.RecordingError, match="changed between step 1"), loop.record(optimizer):
        loop.step(Compiled())
        loop.model.get_parameter("2.bias").data.add_(1)
        loop.step(Compiled())


def test_accelerates_optimiser_is_recorded_where_it_steps() -> None:
    """Three levels deep, as a Trainer's may be; while gradients accumulate there is no step."""
    loop = Loop()
    inner = SGD(loop.model.parameters(), lr=0.1)
    optimizer = AcceleratedOptimizer(AcceleratedOptimizer(inner), accumulate=3)
    assert bare_optimizers(optimizer) == ((inner,), ("AcceleratedOptimizer",))
    complete = Lookahead(inner)
    assert bare_optimizers(complete) == ((complete,), ())
    with loop.record([optimizer, inner]) as recorder:
        assert hooks(inner) == 2
        loop.step(optimizer, 9)
    assert recorder.steps == 3
    assert all(torch.equal(a, b) for a, b in zip(displacements(recorder), loop.oracle[2::3], strict=True))


def test_a_step_that_a_gradient_scaler_skips_is_none() -> None:
    loop = Loop()
    optimizer = SGD(loop.model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with loop.record(optimizer) as recorder:
        for bad in (False, True, False):
            optimizer.zero_grad()
            loss = loop.model(torch.ones(2, 4)).sum() * (torch.inf if bad else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert recorder.steps == 2
    assert recorder.regulated(ecgr.ECGR()).flat.isfinite().all()


@pytest.mark.parametrize("given", [None, "sgd", torch.zeros(1), mlp(), [], [None]], ids=str)
def test_what_is_no_optimiser_is_refused(given: Any) -> None:
    with pytest.raises(ecgr.RecordingError, match=r"give (the torch optimiser|those that train)") as refusal:
        ecgr.Recorder(mlp(), given)
    assert "\n" not in str(refusal.value)


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        empty = mlp()
    with pytest.raises(ecgr.RecordingError, match=r"`0.weight` is on the meta device and has no values; .*to_empty"):
        ecgr.Recorder(empty, SGD(empty.parameters(), lr=0.1)).__enter__()
    lazy = nn.LazyLinear(2)
    with pytest.raises(ecgr.RecordingError, match="`weight` has no shape yet; run one batch"):
        ecgr.Recorder(lazy, SGD(lazy.parameters(), lr=0.1)).__enter__()
