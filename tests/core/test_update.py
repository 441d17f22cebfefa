"""An update says what it is, and a model takes it."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

import ecgr
from ecgr.core.geometry import identity
from support.loops import STEPS, mlp, train
from support.problems import same_bits


def recorded(model: nn.Module, beta: float = 0.2) -> ecgr.Update:
    optimizer = SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer) as steps:
        train(model, optimizer)
    return steps.regulated(ecgr.ECGR(beta=beta))


def test_an_update_is_shown_in_one_line() -> None:
    update = recorded(mlp())
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
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer) as steps:
        train(model, optimizer)
    with pytest.raises(ecgr.ConfigError, match=line):
        steps.regulated(regulator)


def test_of_a_diverged_training_too() -> None:
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer) as steps:
        model.get_parameter("2.bias").grad = torch.full((2,), torch.nan)
        optimizer.step()
    with pytest.warns(ecgr.NotFiniteWarning):
        assert repr(steps.regulated(ecgr.ECGR())).endswith("1 of 1 steps kept, norm nan)")


def test_float64_parameters_are_set_without_a_detour_through_float32() -> None:
    """A tenth has no exact float32: through one, digits would be lost."""
    model = nn.Linear(2, 1).double()
    with torch.no_grad():
        model.weight.fill_(0.1)
    optimizer = SGD(model.parameters(), lr=1.0)
    with ecgr.Recorder(model, optimizer) as steps:
        for _ in range(2):
            model.weight.grad = torch.full((1, 2), 1e-12, dtype=torch.float64)
            optimizer.step()
    end = model.weight.detach().clone()
    update = steps.regulated(ecgr.ECGR(beta=1.0))
    with torch.no_grad():
        model.weight.zero_()
    update.apply_(model)
    assert float((model.weight.detach() - end).abs().max()) < 1e-16
    assert float((model.weight.detach() - 0.1).abs().max()) == pytest.approx(2e-12, rel=1e-3)


def test_applying_twice_or_to_a_changed_model_sets_the_same_values() -> None:
    model = mlp()
    update = recorded(model)
    for _ in range(2):
        update.apply_(model)
        values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        assert same_bits(values, update.start - update.flat)
        train(model, SGD(model.parameters(), lr=1.0), steps=2)
