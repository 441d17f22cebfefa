"""The best recombination of a client's steps: golden cases, and no other weights come nearer to the target."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from study.ceiling import ARMS, PLAIN, follow, recombined
from study.ceiling_runs import read_ceiling, run_one
from study.recombination import best_weights, cosine

import ecgr
from ecgr.config.experiment import load
from ecgr.simulation.prepare import prepare

SMALL = {
    "data.name": "digits",
    "data.fraction": 0.1,
    "partition.clients": 3,
    "federation.rounds": 2,
    "model.name": "lenet",
    "run.seed": 0,
}


def test_golden_two_steps_in_the_plane() -> None:
    # g1 = (1, 0), g2 = (1, 1); the target (1, 2) is -1 g1 + 2 g2, and the nearest without a minus lies along g2.
    steps, target = np.array([[1.0, 0.0], [1.0, 1.0]]), np.array([1.0, 2.0])
    gram, inner = steps @ steps.T, steps @ target
    signed = best_weights(gram, inner, signed=True)
    unsigned = best_weights(gram, inner, signed=False)
    assert signed is not None and unsigned is not None
    np.testing.assert_allclose(signed, [-1.0, 2.0], atol=1e-12)
    np.testing.assert_allclose(unsigned, [0.0, 1.5], atol=1e-12)
    assert cosine(gram, inner, signed, 5**0.5) == pytest.approx(1.0)
    assert cosine(gram, inner, unsigned, 5**0.5) == pytest.approx(3 / (2**0.5 * 5**0.5))


def test_steps_that_all_lead_away_have_no_best_weights() -> None:
    assert best_weights(np.eye(2), np.array([-1.0, -2.0]), signed=False) is None
    assert best_weights(np.eye(2), np.zeros(2), signed=True) is None


numbers = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 3))


@given(
    steps=arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=numbers),
    target=arrays(np.float64, 4, elements=numbers),
    others=arrays(np.float64, (8, 5), elements=numbers),
    signed=st.booleans(),
)
def test_no_other_weights_come_nearer_to_the_target(
    steps: np.ndarray, target: np.ndarray, others: np.ndarray, signed: bool
) -> None:
    target = target[: steps.shape[1]]
    length, gram, inner = float(np.linalg.norm(target)), steps @ steps.T, steps @ target
    if length < 1e-3 or np.abs(steps).max() < 1e-3:
        return
    best = best_weights(gram, inner, signed=signed)
    reached = cosine(gram, inner, best, length) if best is not None else 0.0
    for other in others[:, : len(steps)] if signed else np.abs(others[:, : len(steps)]):
        if np.linalg.norm(other @ steps) > 1e-3:
            assert cosine(gram, inner, other, length) <= reached + 1e-6


def test_a_recombined_update_is_as_long_as_the_plain_one() -> None:
    steps = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    made = recombined(steps, torch.tensor([0.0, 1.0]), signed=False)
    torch.testing.assert_close(made, torch.tensor([0.0, 5.0]))
    torch.testing.assert_close(recombined(steps, torch.tensor([-1.0, -1.0]), signed=False), steps.sum(dim=0))


@pytest.mark.slow
def test_the_plain_arm_is_fedavg_and_every_arm_goes_as_far_in_its_first_round(tmp_path: Path) -> None:
    experiment = load("quickstart", {**SMALL, "regulator.name": "none"})
    problem = prepare(experiment, experiment.source.load())
    courses = {arm: follow(problem, arm) for arm in ARMS}
    record = ecgr.run(experiment, out=tmp_path / "run")
    rows = list(record.rounds)
    assert courses[PLAIN].values == tuple(row["accuracy"] for row in rows)
    for arm, course in courses.items():
        assert course.step_norms[0] == pytest.approx(rows[0]["step_norm"], rel=1e-4), arm
        if arm not in (PLAIN, "ecgr"):
            assert course.cosine is not None and course.plain_cosine is not None


def test_a_job_leaves_a_file_that_says_what_made_it(tmp_path: Path) -> None:
    run_one(tmp_path, ("quickstart", "epoch: own steps >= 0", 0), tuple({**SMALL, "regulator.name": "none"}.items()))
    (found,) = read_ceiling(tmp_path)
    assert (found["arm"], found["seed"], len(found["values"])) == ("epoch: own steps >= 0", 0, 2)
    assert found["commit"] is None or len(found["commit"]) == 40


def test_an_arm_that_diverges_has_no_end_and_stops_nobody_else(tmp_path: Path) -> None:
    wild = tuple({**SMALL, "regulator.name": "none", "optimizer.lr": 1e30}.items())
    line = run_one(tmp_path, ("quickstart", "gradient: own steps", 0), wild)
    assert line.endswith("seed 0: diverged")
    (found,) = read_ceiling(tmp_path)
    assert found["values"] == found["step_norms"] == [None, None]
