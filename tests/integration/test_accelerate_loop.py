"""The example of an Accelerate loop: three more lines, and the steps that Accelerate takes are the steps recorded."""

import difflib
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("accelerate", reason="accelerate is not installed")

import ecgr
from ecgr.core.regulators import Plain

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerate-loop"
MODULES = ("sites", "plain", "regulated")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield {name: import_module(name) for name in MODULES}
    for name in MODULES:
        del sys.modules[name]


def test_the_difference_is_three_lines() -> None:
    plain, regulated = ((EXAMPLE / f"{name}.py").read_text().splitlines()[1:] for name in ("plain", "regulated"))
    old = {line.strip() for line in plain}
    changes = [line[2:].strip() for line in difflib.ndiff(plain, regulated) if line.startswith("+ ")]
    assert [line for line in changes if line not in old] == [
        "import ecgr",
        "with ecgr.Recorder(model, optimizer) as steps:",
        "steps.regulated(ecgr.ECGR(beta=0.2)).apply_(model)",
    ]


def test_a_step_is_one_that_accelerate_takes(example: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """45 batches, two of them a step, the last one alone; with beta = 1 the loop sends what the plain one does."""
    seen: list[ecgr.Recorder] = []

    class Seen(ecgr.Recorder):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen.append(self)

    monkeypatch.setattr(ecgr, "Recorder", Seen)
    monkeypatch.setattr(ecgr, "ECGR", lambda beta: Plain())
    generator = torch.Generator().manual_seed(1)
    images, labels = torch.rand(180, 1, 28, 28, generator=generator), torch.randint(10, (180,), generator=generator)
    sent = []
    for name in ("plain", "regulated"):
        batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=4)
        sent.append(example[name].train(example["sites"].build_model(), batches))
    assert [recorder.steps for recorder in seen] == [23]
    assert all(torch.allclose(sent[0][name], sent[1][name], rtol=0, atol=1e-6) for name in sent[0])
