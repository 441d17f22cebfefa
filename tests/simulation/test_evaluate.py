"""Accuracy, loss and per-client accuracy of the global model, by hand."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
import torch

import ecgr
from ecgr.simulation import evaluate as evaluation
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import Score, shards, summarise
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import score, start
from support.problems import blobs, dataset, flat, one_pixel, problem, small_net, two_parameters


def test_accuracy_and_loss_by_hand() -> None:
    """Six white images: labels 0, 0, 0, 1, 1, 1; three clients holding {0: 3, 1: 0}, {0: 0, 1: 2}, {0: 0, 1: 1}.

    w = (1, -1), x = 1: class 0 always wins with probability s(2); half of the images are of class 0.

    Loss: (3 * -log s(2) + 3 * -log(1 - s(2))) / 6. Clients: the first holds class 0 only, accuracy 1; the others 0.
    """
    data = one_pixel([255] * 6, [0, 0, 0, 1, 1, 1])
    two = problem(data, [[0, 1, 2], [3, 4], [5]], model={"name": two_parameters})
    snapshot = replace(start(two), params=flat(1, -1))
    result = score(two, SerialEngine(two), snapshot)
    p = 1 / (1 + exp(-2))
    assert result.metrics["accuracy"] == 0.5
    assert result.loss == pytest.approx(-(log(p) + log(1 - p)) / 2, rel=1e-6)
    assert result.by_client.tolist() == [1.0, 0.0, 0.0]


def test_a_clients_accuracy_mixes_class_accuracies_by_its_label_shares() -> None:
    """Class accuracies 1/2, 1, 0 (of 4, 2, 2 test images).

    Client 0 holds 3 of class 0 and 1 of class 1: 3/4 * 1/2 + 1/4 * 1 = 0.625.  Client 1 holds class 2 alone: 0.
    Client 2 holds one of each: (1/2 + 1 + 0) / 3 = 0.5.  Client 3 holds nothing: no number.
    """
    labels = [0, 0, 0, 1, 2, 2, 0, 1, 2]
    data = dataset(np.zeros((9, 1, 4, 4), dtype=np.uint8), labels, classes=3)
    task = problem(data, [[0, 1, 2, 3], [4, 5], [6, 7, 8], []], model={"name": small_net}, partition={"empty": "skip"})
    scores = [
        Score(3.0, 5, (np.array([[1, 2, 0], [2, 2, 1]]),), {}),
        Score(1.0, 3, (np.array([[1, 0, 0], [2, 0, 1]]),), {}),
    ]
    result = summarise(task, scores)
    assert result.metrics["accuracy"] == 4 / 8
    assert result.loss == 4.0 / 8
    assert result.by_client[:3].tolist() == pytest.approx([0.625, 0.0, 0.5])
    assert np.isnan(result.by_client[3])


def test_a_class_without_test_images_counts_for_nobody() -> None:
    """No test image of class 2. Client 0 (0 and 2) is judged by class 0, client 1 (2 alone) not at all."""
    data = dataset(np.zeros((4, 1, 4, 4), dtype=np.uint8), [0, 2, 2, 1], classes=3)
    task = problem(data, [[0, 1], [2], [3]], model={"name": small_net})
    result = summarise(task, [Score(1.0, 8, (np.array([[3, 1, 0], [4, 4, 0]]),), {})])
    assert result.by_client[0] == 0.75
    assert np.isnan(result.by_client[1])
    assert result.by_client[2] == 0.25


@pytest.mark.parametrize("size", [1, 7, 10, 24, 1000])
def test_the_numbers_do_not_depend_on_the_size_of_a_shard(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    task = problem(blobs(24), [range(12), range(12, 24)], model={"name": small_net})
    snapshot, engine = start(task), SerialEngine(task)
    whole = score(task, engine, snapshot)
    monkeypatch.setattr(evaluation, "SHARD", size)
    jobs = list(shards(task, snapshot.params, snapshot.buffers))
    assert [j.start for j in jobs] == list(range(0, 24, size))
    assert sum(job.cost for job in jobs) == 24
    pieces = score(task, engine, snapshot)
    assert pieces.metrics == whole.metrics
    assert pieces.loss == pytest.approx(whole.loss, rel=1e-6)
    assert pieces.by_client.tolist() == whole.by_client.tolist()


def test_evaluation_uses_running_statistics_and_does_not_move_them() -> None:
    task = problem(blobs(24), [range(24)], model={"name": small_net})
    snapshot, engine = start(task), SerialEngine(task)
    before = {name: b.clone() for name, b in snapshot.buffers.items()}
    one = score(task, engine, snapshot)
    shifted = {**snapshot.buffers, "1.running_mean": snapshot.buffers["1.running_mean"] + 1.0}
    other = score(task, engine, replace(snapshot, buffers=shifted))
    assert one.loss != other.loss
    assert all(torch.equal(before[name], b) for name, b in snapshot.buffers.items())


def test_a_score_does_not_depend_on_where_the_samples_lie_in_memory() -> None:
    rng = np.random.default_rng(0)
    rows, truth = rng.normal(size=(900, 64)).astype(np.float32), rng.integers(0, 10, 900)

    def losses(places: int) -> tuple[float, bytes]:
        room = np.empty(rows.size + places, np.float32)
        room[places:] = rows.ravel()
        moved = room[places:].reshape(rows.shape)
        task = ecgr.Task(lambda: torch.nn.Linear(64, 10), (moved, truth), (moved, truth), clients=truth % 2)
        experiment = ecgr.load(task)
        ready = prepare(experiment, experiment.source.load())
        result = score(ready, SerialEngine(ready), start(ready))
        return result.loss, result.by_client.tobytes()

    assert len({losses(places) for places in range(6)}) == 1
