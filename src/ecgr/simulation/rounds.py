"""Rounds: sample clients, have them trained, aggregate, evaluate.

All that a round needs from the past is in a `Snapshot`; all randomness comes from (seed, purpose, round, client). So a
resumed run computes the same bits as one that never stopped. A federation plays the same rounds: only who trains the
jobs, and where the model is scored, differ.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ecgr.algorithms import Population, Upload
from ecgr.component import State
from ecgr.config.experiment import OWN
from ecgr.core.vectors import merge_buffers
from ecgr.errors import DataError, Diverged, QuorumLost
from ecgr.simulation.client import ClientJob, nonfinite, user_code
from ecgr.simulation.engines import Engine, one_thread
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.evaluate import Evaluation, OwnJob, averaged, evaluate, evaluate_own, mean_of
from ecgr.simulation.heads import Sums, collect_sums, head_round, solved, with_head
from ecgr.simulation.kept import Kept
from ecgr.simulation.server import CLIP, dp_of, draw, first_clip, noised, public_row, server_steps
from ecgr.simulation.workspace import Problem
from ecgr.streams import stream

PARAMS = " params"
"""The parameters among the buffers of an average: a name that no buffer has."""


class ClientStates(Mapping[int, State]):
    """The states of the clients that have taken part; a round makes a new set of them and leaves the old one valid."""

    @abstractmethod
    def updated(self, rounds: int, states: Mapping[int, State]) -> "ClientStates":
        """All states after round ``rounds``, in which these are new."""


class StatesInMemory(dict[int, State], ClientStates):
    """States in a dict."""

    def updated(self, rounds: int, states: Mapping[int, State]) -> "StatesInMemory":
        return StatesInMemory({**self, **states})


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything that the next round depends on.

    Attributes:
        rounds: rounds done.
        params: the global parameters that the clients start from, flat.
        buffers: the global buffers.
        server: the algorithm's server state.
        clients: the states of the clients that have taken part; in a run directory they lie on disk.
        average: running means of the served models, where ``run.served`` asks for them.
        head: weight and bias of the last layer, once a closed-form head has been solved.
    """

    rounds: int
    params: Tensor
    buffers: Mapping[str, Tensor]
    server: State
    clients: ClientStates
    average: State = field(default_factory=dict)
    head: State = field(default_factory=dict)


RESERVED = frozenset({
    "round", "accuracy", "metrics", "loss", "train_loss", "worst_client", "lr", "seconds", "examples", "bytes_up",
    "bytes_down", "step_norm", "clients", "rejected", "without_head", "privacy", "scored_on", "own",
})  # fmt: skip
"""What a line of the record has. No metric of a client may have one of these names."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """One round: where it led, its line for the record, and the steps its clients kept."""

    snapshot: Snapshot
    row: Mapping[str, Any]
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What came back from a round's clients.

    Attributes:
        used: the uploads to aggregate, in client order.
        states: what their clients are to remember.
        rejected: who else was asked, and why it does not count.
    """

    used: Sequence[Upload]
    states: Mapping[int, State]
    rejected: Sequence[tuple[int, str]]


def start(problem: Problem) -> Snapshot:
    """The state before the first round."""
    params = problem.spec.read(problem.model)
    buffers, server = problem.shared_buffers(problem.model), problem.experiment.algorithm.init_server(params)
    return Snapshot(0, params, buffers, {**server, **first_clip(problem.experiment)}, StatesInMemory())


def simulate(problem: Problem, engine: Engine, snapshot: Snapshot) -> Generator[Outcome, None, None]:
    """The remaining rounds of the experiment, one by one."""
    while snapshot.rounds < problem.experiment.federation.rounds:
        outcome = play_round(problem, engine, snapshot)
        yield outcome
        snapshot = outcome.snapshot


def play_round(problem: Problem, engine: Engine, snapshot: Snapshot) -> Outcome:
    """One round after ``snapshot``."""
    began = time.perf_counter()
    jobs = round_jobs(problem, snapshot)
    replies = _replies(jobs, engine.map(jobs))

    def collect(after: Snapshot) -> Sums:
        return collect_sums(problem, engine, *served(problem, after))

    return finish_round(problem, snapshot, jobs, replies, partial(score, problem, engine), began, collect)


def round_jobs(problem: Problem, snapshot: Snapshot, clients: Sequence[int] | None = None) -> list[ClientJob]:
    """The work of the round after ``snapshot``, in client order; of some ``clients``, or of those who take part.

    There is none where no client takes a step.
    """
    algorithm, sizes = problem.experiment.algorithm, problem.partition.sizes()
    if clients is None and not problem.trains:
        return []
    lr, clip = learning_rate(problem, snapshot.rounds), {k: v for k, v in snapshot.server.items() if k == CLIP}
    server = {**algorithm.broadcast(snapshot.server), **clip}
    jobs = []
    for client in participants(problem, snapshot.rounds) if clients is None else clients:
        state = snapshot.clients.get(client) or problem.first_state(snapshot.params)
        jobs.append(
            ClientJob(client, snapshot.rounds, lr, sizes[client], snapshot.params, snapshot.buffers, state, server)
        )
    return jobs


def participants(problem: Problem, round_index: int) -> list[int]:
    """Who takes part in a round: a random share of the clients that have data, sorted."""
    if dp_of(problem.experiment) is not None:
        return draw(problem, round_index)
    able = problem.able
    count = max(1, round(problem.experiment.federation.participation * len(able)))
    if count == len(able):
        return list(able)
    rng = stream(problem.experiment.run.seed, "participants", round_index)
    return sorted(rng.choice(able, size=count, replace=False).tolist())


def learning_rate(problem: Problem, round_index: int) -> float:
    """The local learning rate of a round, counted from 0."""
    experiment = problem.experiment
    return experiment.optimizer.lr * experiment.schedule.factor_at(round_index, experiment.federation.rounds)


def _replies(jobs: Sequence[ClientJob], answers: Iterator[tuple[Upload, State] | Lost]) -> Replies:
    """Which answers are used, and why the others are not."""
    used: list[Upload] = []
    states: dict[int, State] = {}
    rejected: list[tuple[int, str]] = []
    for job, answer in zip(jobs, answers, strict=True):
        if isinstance(answer, Lost):
            rejected.append((job.client, f"lost: {answer.reason}"))
        elif (reason := nonfinite(answer[0])) is not None:
            rejected.append((job.client, reason))
        else:
            upload, state = answer
            used.append(upload)
            states |= {job.client: state} if state else {}
    return Replies(used, states, rejected)


def finish_round(
    problem: Problem,
    snapshot: Snapshot,
    jobs: Sequence[ClientJob],
    replies: Replies,
    score: Callable[[Snapshot], Evaluation],
    began: float,
    collect: Callable[[Snapshot], Sums] | None = None,
) -> Outcome:
    """Aggregate what came back, evaluate by ``score``, and make the round's row; ``began`` is when the round did.

    Where a head is due, ``collect`` gets the sums that it is solved from.
    """
    used, weights = replies.used, [r.examples for r in replies.used]
    after = aggregate(problem, snapshot, replies) if problem.trains else replace(snapshot, rounds=snapshot.rounds + 1)
    evaluation, sums, before = score(after), None, None
    if after.rounds == head_round(problem) and collect is not None:
        sums, before = collect(after), evaluation
        with one_thread():
            after = replace(after, head=solved(problem, sums.total))
        evaluation = score(after)
    row: dict[str, Any] = {
        "round": after.rounds,
        "metrics": dict(evaluation.metrics),
        "loss": evaluation.loss,
        "train_loss": float(np.average([r.train_loss for r in used], weights=weights)) if used else None,
        "worst_client": worst_client(problem, evaluation),
        "lr": learning_rate(problem, snapshot.rounds),
        "seconds": round(time.perf_counter() - began, 4),
        "examples": sum(r.examples for r in used) * problem.experiment.federation.local_epochs,
        "bytes_up": sum(_bytes(r.payload) + _bytes(r.buffers) for r in used),
        "bytes_down": sum(_bytes({"params": j.params}) + _bytes(j.buffers) + _bytes(j.server) for j in jobs),
        "step_norm": float((latest(problem, snapshot) - latest(problem, after)).norm()),
        "clients": [_client_row(r, problem.metrics[0].name, evaluation) for r in used],
        "rejected": [{"client": client, "reason": reason} for client, reason in replies.rejected],
    }
    if "accuracy" in evaluation.metrics:
        row["accuracy"] = evaluation.metrics["accuracy"]
    if evaluation.own is not None:
        row |= {"scored_on": OWN, "own": evaluation.own}
    if sums is not None and before is not None:
        row["without_head"] = {"metrics": dict(before.metrics), "loss": before.loss}
        row["bytes_up"] += sums.sent * _bytes(sums.total)
        row["bytes_down"] += sums.asked * (_bytes({"params": after.params}) + _bytes(after.buffers))
        row["rejected"] += [{"client": client, "reason": f"head: {reason}"} for client, reason in sums.rejected]
    if (dp := dp_of(problem.experiment)) is not None:
        return Outcome(after, {**row, **public_row(problem, dp, after.rounds, snapshot.server)}, ())
    return Outcome(after, row, tuple(Kept(after.rounds, r.client, r.steps, r.kept) for r in used if r.kept))


def aggregate(problem: Problem, snapshot: Snapshot, replies: Replies) -> Snapshot:
    """The state after the round: the algorithm's step, buffers averaged by examples, new client states."""
    used, dp = replies.used, dp_of(problem.experiment)
    if not used and (dp is None or replies.rejected):
        client, reason = replies.rejected[0]
        diverged = all("nonfinite" in why for _, why in replies.rejected)
        advice = "; a smaller optimizer.lr often helps" if diverged else ""
        raise (Diverged if diverged else QuorumLost)(
            f"round {snapshot.rounds + 1}: none of {len({c for c, _ in replies.rejected})} client updates can be used"
            f" (client {client}: {reason}){advice}"
        )
    lr, sizes = learning_rate(problem, snapshot.rounds), problem.partition.sizes()
    population = Population(clients=len(problem.able), examples=sum(sizes))
    with user_code(f"round {snapshot.rounds + 1}, server"), one_thread():
        algorithm = problem.experiment.algorithm
        clip: State = {}
        if dp is not None:
            used, clip = noised(problem, dp, snapshot.rounds, snapshot.params, snapshot.server, used)
        params, server = algorithm.aggregate(snapshot.params, snapshot.server, used, population, lr)
        server = {**server, **clip}
        buffers = merge_buffers([r.buffers for r in used], [r.examples for r in used])
        params = server_steps(problem, params, buffers, snapshot.rounds)
    if not all(torch.isfinite(tensor).all() for tensor in (params, *server.values())):
        raise Diverged(
            f"round {snapshot.rounds + 1}: the aggregate of finite updates is not finite; lower the learning rates"
        )
    states = snapshot.clients.updated(snapshot.rounds + 1, replies.states)
    after = Snapshot(snapshot.rounds + 1, params, buffers, server, states)
    if problem.experiment.run.served == "average":
        model = {PARAMS: latest(problem, after), **buffers}
        after = replace(after, average=averaged(snapshot.average, after.rounds, model))
    return after


def score(problem: Problem, engine: Engine, snapshot: Snapshot) -> Evaluation:
    """Evaluate the model that is handed out; a metric without a value is refused."""
    if problem.experiment.data.score == OWN:
        evaluation = evaluate_own(problem, engine, own_jobs(problem, snapshot))
    else:
        evaluation = evaluate(problem, engine, *served(problem, snapshot))
    for name, value in evaluation.metrics.items():
        if not np.isfinite(value):
            line = f"round {snapshot.rounds}: the metric {name} is {value} on the test samples"
            if np.isfinite(evaluation.loss):
                raise DataError(f"{line}, though the loss is finite: it is not defined for them")
            raise Diverged(
                f"{line}, and the loss is not finite either: training diverged; a smaller optimizer.lr often helps"
            )
    return evaluation


def own_jobs(problem: Problem, snapshot: Snapshot) -> list[OwnJob]:
    """The jobs that score the clients' models, in client order."""
    (params, buffers), last = served(problem, snapshot), snapshot.rounds - 1
    lr = learning_rate(problem, last)
    return [
        OwnJob(client, last, lr, len(rows), params, buffers, snapshot.clients.get(client, {}) if problem.local else {})
        for client, rows in problem.own_rows.items()
    ]


def served(problem: Problem, snapshot: Snapshot) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The parameters and buffers that are evaluated and handed out; clients start from ``snapshot.params``."""
    params, buffers = latest(problem, snapshot), snapshot.buffers
    if snapshot.average:
        buffers = mean_of(snapshot.average)
        params = buffers.pop(PARAMS)
    return (with_head(problem, params, snapshot.head) if snapshot.head else params), buffers


def latest(problem: Problem, snapshot: Snapshot) -> Tensor:
    """The parameters that the algorithm would hand out after this round."""
    return problem.experiment.algorithm.served(snapshot.params, snapshot.server)


def final_state(problem: Problem, snapshot: Snapshot) -> dict[str, Tensor]:
    """The state dict of the model that is handed out, without what never leaves the clients."""
    params, buffers = served(problem, snapshot)
    if problem.frozen is not None:
        return problem.frozen.state(problem.spec, params, buffers)
    return {**problem.spec.named(params), **buffers}


def worst_client(problem: Problem, evaluation: Evaluation) -> float | None:
    """The first metric of the worst client; None if no client has a number of its own."""
    if np.isnan(evaluation.by_client).all():
        return None
    worst = np.nanmin if problem.metrics[0].larger_is_better else np.nanmax
    return float(worst(evaluation.by_client))


def _client_row(upload: Upload, metric: str, evaluation: Evaluation) -> dict[str, Any]:
    """What a record says of one client, with six digits: there are many of these numbers."""
    told: dict[str, Any] = {
        "client": upload.client,
        "examples": upload.examples,
        "steps": upload.steps,
        "train_loss": upload.train_loss,
        metric: float(evaluation.by_client[upload.client]),
        "seconds": round(upload.seconds, 4),
        **({"store": upload.store} if upload.store else {}),
        **upload.metrics,
    }
    return {key: float(f"{value:.6g}") if isinstance(value, float) else value for key, value in told.items()}


def _bytes(state: State) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.values())
