"""`run.precision`: products in bfloat16, everything that is kept in float32."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ecgr.core.recorder import Steps
from ecgr.errors import ConfigError
from ecgr.runs.calibration import precision_note
from ecgr.simulation.client import train
from ecgr.simulation.engines import SerialEngine, open_engine
from ecgr.simulation.rounds import play_round, round_jobs, score, start
from ecgr.simulation.workspace import PRECISIONS, Problem, Workspace
from support.problems import blobs, offer, problem, same_bits, small_net


def task(precision: str = "bf16", **sections: Any) -> Problem:
    settings = {
        "model": {"name": small_net},
        "run": {"precision": precision},
        "federation": {"batch_size": 4},
        "regulator": {"name": "ecgr"},
        **sections,
    }
    return problem(blobs(24), [range(12), range(12, 24)], **settings)


def test_a_clients_round_in_bf16_is_near_float32s_and_all_that_is_kept_is_float32() -> None:
    updates: dict[str, Tensor] = {}
    for precision in PRECISIONS:
        chosen = task(precision)
        workspace = Workspace(chosen)
        steps = train(round_jobs(chosen, start(chosen))[0], workspace, {}, {}).update
        assert isinstance(steps, Steps)
        assert {p.dtype for p in workspace.model.parameters()} == {torch.float32}
        updates[precision] = steps.plain
    exact, rounded = updates["float32"], updates["bf16"]
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.99


def test_a_model_is_scored_in_float32_whatever_it_was_trained_in() -> None:
    scores = [score(chosen, SerialEngine(chosen), start(chosen)) for chosen in map(task, PRECISIONS)]
    assert scores[0].loss == scores[1].loss
    assert scores[0].metrics == scores[1].metrics


@pytest.mark.slow
def test_serial_and_pooled_rounds_in_bf16_give_the_same_bits() -> None:
    """With SCAFFOLD, whose state goes through workers, and a last batch of another size."""
    chosen = problem(
        blobs(30, side=28),
        [range(13), range(13, 30)],
        model={"name": "lenet"},
        algorithm={"name": "scaffold"},
        run={"precision": "bf16"},
        federation={"batch_size": 4},
    )
    ends = []
    for workers in (1, 2):
        snapshot = start(chosen)
        with open_engine(chosen, workers, "serial" if workers == 1 else "pool") as engine:
            for _ in range(2):
                snapshot = play_round(chosen, engine, snapshot).snapshot
        ends.append(snapshot.params)
    assert same_bits(*ends)


def test_a_model_that_cannot_be_computed_in_bf16_is_refused_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Picky(nn.Linear):
        def forward(self, given: Tensor) -> Tensor:
            return torch.mv(super().forward(given), torch.ones(3))[:, None].expand(-1, 3)

    offer(monkeypatch, picky=lambda *, channels, classes: nn.Sequential(nn.Flatten(), Picky(36, 3)))
    with pytest.raises(ConfigError, match=r"cannot take the test samples in run\.precision = 'bf16' \(RuntimeError"):
        task(model={"name": "picky"})


@pytest.mark.parametrize(
    ("float32", "said"),
    [(4.0, "a step takes 0.50 of float32's time here"), (1.0, "a step takes 2.00 of float32's time here; float32 is")],
)
def test_the_note_says_what_a_step_takes_compared_with_float32(float32: float, said: str) -> None:
    """By the clock, 2 s for the step in bf16 and so many for the one in float32; after a second no more are taken."""
    clock = iter((0.0, 0.0, 2.0, 2.0, 2.0 + float32, 9.0))
    note = precision_note(task(), lambda: next(clock))
    assert note is not None
    assert said in note
    assert precision_note(task("float32")) is None
