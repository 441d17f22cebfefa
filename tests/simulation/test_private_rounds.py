"""Rounds under differential privacy: who is drawn, equal weights, the same bits, what the record leaves out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.compare.analyse import analyse
from ecgr.config.experiment import Experiment, load
from ecgr.config.methods import parse_method
from ecgr.core.vectors import weighted_mean
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import run
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, StatesInMemory, participants, round_jobs, simulate, start
from ecgr.simulation.server import CLIP
from support.commands import run_in_three_ways
from support.private import linear
from support.problems import offer, same_bits, small_net


def accounted() -> None:
    """Noise is refused where epsilon cannot be counted."""
    pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, linear=linear, small=small_net)


def experiment(method: str, changes: Mapping[str, Any] | None = None) -> Experiment:
    """Six unlike clients, of whom half take part in a round."""
    few = {
        "data.fraction": 0.2,
        "partition.clients": 6,
        "partition.min_batches": 1,
        "model.name": "linear",
        "federation.rounds": 4,
        "federation.participation": 0.5,
        "optimizer.lr": 0.1,
    }
    return load("quickstart", {**few, **parse_method(method), **(changes or {})})


def test_without_noise_and_clip_it_is_fedavg_with_equal_weights_to_the_bit() -> None:
    chosen = experiment("fedavg+dp(clip=inf, noise=0)", {"federation.participation": 1.0})
    problem = prepare(chosen, chosen.source.load())
    plain = prepare(experiment("fedavg", {"federation.participation": 1.0}), chosen.source.load())
    snapshot, engine = start(plain), SerialEngine(plain)
    for outcome in simulate(problem, SerialEngine(problem), start(problem)):
        answers: list[Any] = list(engine.map(round_jobs(plain, snapshot)))
        mean = weighted_mean([upload.payload["update"] for upload, _ in answers], [1.0] * 6)
        snapshot = Snapshot(snapshot.rounds + 1, snapshot.params - mean, {}, {}, StatesInMemory())
        assert same_bits(outcome.snapshot.params, snapshot.params)
    assert len({upload.examples for upload, _ in answers}) > 1, "else equal weights would be those by examples"


def test_clients_are_drawn_one_by_one() -> None:
    """Of 6 clients with probability 1/2 over 400 rounds: 3 on average (se 0.06), variance 1.5; nobody in 1 of 64."""
    chosen = experiment("fedavg+dp(noise=0)")
    problem = prepare(chosen, chosen.source.load())
    rounds = [participants(problem, index) for index in range(400)]
    counts = np.array([len(drawn) for drawn in rounds])
    assert counts.mean() == pytest.approx(3, abs=0.25)
    assert counts.var() == pytest.approx(1.5, abs=0.4)
    assert (counts == 0).any()
    assert all(drawn == sorted(set(drawn)) for drawn in rounds)
    assert np.bincount(np.concatenate(rounds).astype(int)) == pytest.approx([200] * 6, abs=50)


def test_a_round_without_clients_adds_noise_and_no_more() -> None:
    accounted()
    chosen = experiment("fedavg+dp(clip=2, noise=3)", {"federation.participation": 1e-9, "federation.rounds": 1})
    problem = prepare(chosen, chosen.source.load())
    [outcome] = simulate(problem, SerialEngine(problem), start(problem))
    noise = (outcome.snapshot.params - start(problem).params) * (6 * 1e-9) / (3 * 2)
    assert float(noise.std()) == pytest.approx(1, rel=0.25)
    assert outcome.row["clients"] == []


@pytest.mark.parametrize(
    "method", ["fedavg+dp(clip=0.5, noise=0)+ecgr", "fedprox/momentum+dp(clip=0.5, noise=0.5, quantile=0.5)"]
)
def test_pool_resumed_and_serial_give_the_same_bits(method: str, tmp_path: Path) -> None:
    if "noise=0)" not in method:
        accounted()
    run_in_three_ways(experiment(method), tmp_path, cut=2)


def test_the_clip_of_a_round_goes_to_its_clients_and_moves() -> None:
    accounted()
    chosen = experiment("fedavg+dp(clip=0.01, noise=0.1, quantile=0.5)", {"federation.participation": 1.0})
    problem = prepare(chosen, chosen.source.load())
    first = start(problem)
    assert {float(job.server[CLIP]) for job in round_jobs(problem, first)} == {0.01}
    uploads: list[Any] = list(SerialEngine(problem).map(round_jobs(problem, first)))
    assert max(float(upload.payload["update"].norm()) for upload, _ in uploads) <= 0.01 * (1 + 1e-6)
    assert min(upload.metrics["update_norm"] for upload, _ in uploads) > 0.01, "before the clip"
    clips = [outcome.row["privacy"]["clip"] for outcome in simulate(problem, SerialEngine(problem), first)]
    assert clips[0] == 0.01
    assert clips == sorted(clips), "all updates are longer, so it grows"
    assert len(set(clips)) == len(clips)


def test_the_record_has_epsilon_and_nothing_of_single_clients(tmp_path: Path) -> None:
    accounted()
    from ecgr.algorithms.privacy import epsilon

    record = run(experiment("fedavg+dp(clip=0.5, noise=2, delta=1e-6)+ecgr"), tmp_path / "private")
    for row in record.rounds:
        assert row["privacy"]["epsilon"] == pytest.approx(epsilon(2.0, 0.5, row["round"], 1e-6))
        assert row["privacy"]["counted"] == row["round"]
        assert row["clients"] == []
        assert [row[key] for key in ("train_loss", "worst_client", "examples", "bytes_up", "bytes_down")] == [None] * 5
    assert record.kept() == []
    plain = run(experiment("fedavg+ecgr"), tmp_path / "plain")
    assert "privacy" not in plain.rounds[0]
    assert "dp" not in plain.config


def test_the_answer_says_epsilon_and_what_it_costs(tmp_path: Path) -> None:
    accounted()
    private = "fedavg+dp(clip=0.5, noise=2)"
    for seed in range(2):
        for name, method in (("plain", "fedavg"), ("private", private)):
            run(experiment(method, {"run.seed": seed}), tmp_path / f"{name}-{seed}")
    answer = analyse([RunRecord.open(path) for path in sorted(tmp_path.iterdir())])
    text = str(answer).replace("\n", " ")
    expected = RunRecord.open(tmp_path / "private-0").rounds[-1]["privacy"]["epsilon"]
    assert f"{private}: epsilon {expected:.3g} at delta 1e-05: costs " in text
    assert "protects a whole client, not a sample" in text
    again = tmp_path / "summaries"
    answer.write(again, warn=lambda _: None)
    assert str(analyse(again / "summaries.json")) == str(
        analyse([RunRecord.open(p) for p in sorted(tmp_path.glob("p*"))])
    )
    assert f"epsilon {expected:.3g} at delta 1e-05" in (again / "report.html").read_text()


def test_buffers_are_refused_and_what_to_know_is_noted() -> None:
    chosen = experiment("fedavg+dp(noise=0)", {"model.name": "small"})
    with pytest.raises(ConfigError, match="dp: the model has buffers"):
        prepare(chosen, chosen.source.load())
    chosen = experiment("fedavg+dp(noise=0, delta=0.5)", {"federation.participation": 1.0})
    notes = " ".join(prepare(chosen, chosen.source.load()).notes)
    assert "every client takes part" in notes
    assert "not below 1/6" in notes
