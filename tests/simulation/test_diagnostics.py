"""Diagnostics: by hand, against explicit formulas, and without influence on the run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ecgr
from ecgr.simulation.diagnostics import Vectors, client_diagnostics, cosine, mean_pairwise_cosine, round_diagnostics
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import play_round, start
from ecgr.simulation.workspace import Problem


def vectors(a: list[float], b: list[float], beta: float) -> Vectors:
    kept, rest = torch.tensor(a), torch.tensor(b)
    plain, mixed = kept + rest, kept + beta * rest
    return Vectors(kept, plain, mixed * (plain.norm() / mixed.norm()))


def test_a_client_by_hand() -> None:
    """a = (2, 0), b = (0, 1), mu = (1, 1): cos(a, mu) = cos(b, mu) = 1/sqrt(2), so the assumption does not hold.

    c = (2, 1) has cosine 3/sqrt(10) with mu; with beta = 0, v points along a, whose cosine is smaller: the conclusion
    does not hold either.
    """
    found = client_diagnostics(vectors([2.0, 0.0], [0.0, 1.0], beta=0.0), {"mu": torch.tensor([1.0, 1.0])})
    assert found["norm_a"] == 2.0
    assert found["norm_b"] == 1.0
    assert found["cos_a_b"] == 0.0
    assert found["cos_v_c"] == pytest.approx(2 / 5**0.5)
    assert found["cos_c_mu"] == pytest.approx(3 / 10**0.5)
    assert found["cos_v_mu"] == pytest.approx(1 / 2**0.5)
    assert found["assumption_mu"] == 0.0
    assert found["conclusion_mu"] == 0.0


def test_a_round_by_hand() -> None:
    """Updates (2, 0) with 3 examples and (0, 2) with 1: mean (1.5, 0.5), so diversity 4 / 2.5, pairwise cosine 0."""
    clients = [vectors([2.0, 0.0], [0.0, 0.0], 1.0), vectors([0.0, 2.0], [0.0, 0.0], 1.0)]
    found = round_diagnostics(clients, [3, 1], {"mu": torch.tensor([1.0, 0.0])})
    assert found["drift"] == pytest.approx(2.0)
    assert found["gradient_diversity"] == pytest.approx(4 / 2.5)
    assert found["pairwise_cosine"] == pytest.approx(0.0)
    assert found["norm_ratio"] == pytest.approx(1.0)
    assert found["cos_before_mu"] == found["cos_after_mu"] == pytest.approx(1.5 / 2.5**0.5)


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_mean_pairwise_cosine_equals_the_explicit_mean(seed: int, count: int) -> None:
    drawn = [torch.from_numpy(x) for x in np.random.default_rng(seed).normal(size=(count, 5))]
    pairs = [cosine(drawn[i], drawn[j]) for i in range(count) for j in range(i)]
    assert mean_pairwise_cosine(drawn) == pytest.approx(float(np.mean(pairs)), abs=1e-12)


@given(st.integers(0, 10_000), st.floats(0, 0.99))
def test_the_conclusion_is_that_the_error_shrinks(seed: int, beta: float) -> None:
    """For updates of equal length, |v - mu| < |c - mu| exactly if cos(v, mu) > cos(c, mu)."""
    a, b, mu = np.random.default_rng(seed).normal(size=(3, 4))
    given_vectors = vectors(a.tolist(), b.tolist(), beta)
    direction = torch.from_numpy(mu)
    found = client_diagnostics(given_vectors, {"mu": direction})
    errors = [float((x.double() - direction).norm()) for x in (given_vectors.regulated, given_vectors.plain)]
    if abs(errors[0] - errors[1]) > 1e-6:  # float32 updates differ in length by rounding
        assert found["conclusion_mu"] == float(errors[0] < errors[1])


def problem(**overrides: object) -> Problem:
    experiment = ecgr.load("quickstart", {"partition.clients": 4, "federation.rounds": 2, **overrides})
    return prepare(experiment, experiment.source.load())


def test_mu_is_the_gradient_of_the_mean_loss() -> None:
    """All samples in one batch size that divides them: the summed shards point where plain autograd points."""
    from ecgr.simulation.diagnostics import gradient_jobs
    from ecgr.simulation.workspace import Workspace

    prepared = problem()
    workspace, snapshot = Workspace(prepared), start(prepared)
    jobs = list(gradient_jobs(prepared, 0, snapshot.params, snapshot.buffers))
    assert sum(len(job.samples) for job in jobs) == 1438 // 256 * 256
    total = torch.stack([job.run(workspace) for job in jobs]).sum(dim=0)
    samples = torch.cat([job.samples for job in jobs])
    workspace.model.zero_grad()
    scores, labels = workspace.batch(workspace.train, samples)
    torch.nn.functional.cross_entropy(scores, labels).backward()  # type: ignore[no-untyped-call]
    expected = torch.cat([p.grad.flatten() for p in workspace.model.parameters() if p.grad is not None])
    assert cosine(total.double(), expected.double()) > 1 - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_diagnostics_change_no_result(algorithm: str, tmp_path: Path) -> None:
    rows = []
    for wanted in (False, True):
        prepared = problem(**{"run.diagnostics": wanted, "algorithm.name": algorithm})
        engine, snapshot = SerialEngine(prepared), start(prepared)
        for _ in range(2):
            outcome = play_round(prepared, engine, snapshot)
            snapshot = outcome.snapshot
        rows.append((snapshot.params, outcome.row))
    (plain, without), (measured, row) = rows
    assert torch.equal(plain, measured)
    assert "diagnostics" not in without
    assert {"cos_after_mu", "cos_before_previous", "norm_ratio", "drift"} <= set(row["diagnostics"])
    assert {"cos_v_mu", "assumption_aggregate", "conclusion_previous"} <= set(row["clients"][0]["diagnostics"])


def test_without_regulation_before_and_after_are_the_same() -> None:
    prepared = problem(**{"run.diagnostics": True, "regulator.name": "none"})
    row = play_round(prepared, SerialEngine(prepared), start(prepared)).row
    assert row["diagnostics"]["cos_before_mu"] == row["diagnostics"]["cos_after_mu"]
    assert row["diagnostics"]["norm_ratio"] == 1.0
    assert set(row["clients"][0]["diagnostics"]) == {"cos_c_mu", "cos_c_aggregate"}
