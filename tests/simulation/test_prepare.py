"""What a model may be made of, and what is said before anything is trained."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ecgr.config.experiment import load
from ecgr.errors import ConfigError
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Problem
from ecgr.tasks.task import Task


class Model(nn.Module):
    """Two layers, and a buffer where one is given."""

    def __init__(self, buffer: Tensor | None = None, *, softmax: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.softmax = nn.Linear(4, 3), nn.Linear(3, 2), softmax
        if buffer is not None:
            self.register_buffer("kept", buffer)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(x))
        return outputs.softmax(dim=1) if self.softmax else outputs


def prepared(model: nn.Module, loss: Any = "cross_entropy") -> Problem:
    inputs = np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4)
    half = (inputs, np.arange(12) % 2)
    experiment = load(Task(model=model, train=half, test=half, clients=list("abc") * 4, loss=loss))
    return prepare(experiment, experiment.source.load())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.complex64])
def test_a_buffer_that_cannot_be_averaged_exactly_is_refused_by_name(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ConfigError, match=rf"^model: buffer 'kept' is {name}; give float16, float32, float64$"):
        prepared(Model(torch.ones(2).to(dtype)))


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_complex_parameters_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"^model: parameter 'first.weight' is complex64; give [^\n]*bfloat16$"):
        prepared(Model().to(torch.complex64))


def test_a_module_of_bfloat16_is_taken_as_it_is() -> None:
    assert next(prepared(Model().to(torch.bfloat16)).model.parameters()).dtype == torch.bfloat16


def test_several_dtypes_are_named_as_the_cause() -> None:
    model = Model()
    model.second.double()
    with pytest.raises(ConfigError, match=r"several dtypes \(first.weight is float32, second.weight is float64\)"):
        prepared(model)


@pytest.mark.parametrize("loss", ["cross_entropy", "fedntd", nn.functional.cross_entropy, nn.CrossEntropyLoss()])
def test_probabilities_given_to_cross_entropy_are_noted(loss: Any) -> None:
    (note,) = prepared(Model(softmax=True), loss).notes
    assert "expects logits" in note
    assert not prepared(Model(), loss).notes
