"""LoRA through peft: a task whose model is wrapped by `get_peft_model` trains and sends its adapters alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from torch import Tensor, nn

import ecgr
from ecgr.runs.runner import run
from ecgr.simulation.prepare import prepare

CLASSES, LENGTH, VOCABULARY, RANK, WIDTH = 2, 6, 11, 2, 8

pytestmark = pytest.mark.slow


@pytest.fixture
def heavy() -> tuple[Any, Any]:
    """The packages transformers and peft."""
    reason = "the extra heavy is not installed"
    return pytest.importorskip("transformers", reason=reason), pytest.importorskip("peft", reason=reason)


class Scores(nn.Module):
    """A transformer's logits: transformers give them in an object of their own."""

    def __init__(self, heavy: tuple[Any, Any]) -> None:
        super().__init__()
        transformers, peft = heavy
        config = transformers.BertConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
            max_position_embeddings=LENGTH, num_labels=CLASSES, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        lora = peft.LoraConfig(r=RANK, target_modules=["query", "value"], modules_to_save=["classifier"])
        self.net = peft.get_peft_model(transformers.BertForSequenceClassification(config), lora)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.net(input_ids=tokens).logits  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_only_adapters_are_trained_and_sent(heavy: tuple[Any, Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(VOCABULARY, size=(24, LENGTH)), np.arange(24) % CLASSES
    task = ecgr.Task(model=lambda: Scores(heavy), train=(x, y), test=(x, y), clients=2, partition=ecgr.IID())
    settings = {"regulator.name": "none", "run.served": "last"}
    adapters = 2 * 2 * RANK * WIDTH + CLASSES * WIDTH + CLASSES  # A and B of query and value, and the classifier
    problem = prepare(ecgr.load(task, settings), task.load())
    assert problem.spec.size == adapters
    record = run(task, tmp_path / "run", rounds=2, lr=0.1, batch_size=4, settings=settings)
    assert record.rounds[-1]["bytes_up"] == 2 * 4 * adapters
    left = load_file(tmp_path / "run" / "model.safetensors")
    assert all("lora_" in name or "classifier" in name for name in left)
    assert any(np.abs(value).sum() > 0 for name, value in left.items() if "lora_B" in name)
