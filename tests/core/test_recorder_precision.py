"""Steps are recorded in the precision of the parameters, or a wider one."""

import pytest
import torch
from torch.optim import SGD

import ecgr
from support.loops import Loop, check_exact, clip_data, displacements, mlp


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


def test_bfloat16_parameters_are_recorded_in_float32_exactly() -> None:
    loop = Loop(mlp().bfloat16())
    optimizer = SGD(loop.model.parameters(), lr=0.5)
    with loop.record(optimizer):
        loop.step(optimizer, 5)
    assert loop.recorder is not None
    assert all(torch.equal(a, b) for a, b in zip(displacements(loop.recorder), loop.oracle, strict=True))
    update = loop.recorder.regulated(ecgr.ECGR())
    update.apply_(loop.model)
    assert torch.equal(loop.flat(), (update.start - update.flat).bfloat16().float())


def test_a_bfloat16_model_that_is_clipped_is_refused() -> None:
    loop = Loop(mlp().bfloat16())
    optimizer = SGD(loop.model.parameters(), lr=0.5)
    with pytest.raises(ecgr.RecordingError, match="between step 2"), loop.record(optimizer):
        loop.step(optimizer, 2)
        clip_data(loop.model)
        loop.step(optimizer)


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
