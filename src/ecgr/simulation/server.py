"""What the server does beside averaging: noise under differential privacy, and steps on samples of its own.

Under differential privacy: who is drawn, what the server makes of the updates, what the record may say. In simulation
all chance comes from the run's seed, so that a run can be repeated; who knows the seed can take the noise off again. In
a federation it comes from the operating system, and every attempt at a round is counted in a file, because one that is
repeated costs twice.

Steps on the server's own labelled samples are taken from the new global parameters, after every aggregation: plain
steps down the gradient of the loss that test samples are scored with, in training mode. Buffers stay the clients' mean.
Which samples a step sees depends on seed and round alone.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ecgr.algorithms import Trace, Upload
from ecgr.algorithms.base import scalar
from ecgr.algorithms.parts import ServerSteps
from ecgr.algorithms.privacy import DP, Numbers, clipped, epsilon, next_clip, noised_mean
from ecgr.component import State
from ecgr.config.experiment import Experiment
from ecgr.config.optimizers import SGD
from ecgr.core.vectors import read_buffers, write_buffers
from ecgr.errors import ConfigError
from ecgr.files import append, flush
from ecgr.simulation.workspace import Problem, seeded, taken
from ecgr.streams import SystemNumbers, stream, torch_seed
from ecgr.tasks.losses import evaluation_of

CLIP = "dp/clip"
"""The clip that follows a quantile, among the server's tensors."""


def dp_of(experiment: Experiment) -> DP | None:
    """The part, where it is on."""
    return experiment.parts.get("dp")


def first_clip(experiment: Experiment) -> State:
    """What the server keeps, and clients get, of a clip that moves."""
    dp = dp_of(experiment)
    return {} if dp is None or dp.quantile is None else {CLIP: scalar(dp.clip)}


def clip_upload(experiment: Experiment, server: State, trace: Trace) -> Trace:
    """A client's round with its update clipped."""
    dp = dp_of(experiment)
    return trace if dp is None else replace(trace, update=clipped(trace.update, float(server.get(CLIP, dp.clip))))


def draw(problem: Problem, round_index: int) -> list[int]:
    """Who takes part: everybody with the same probability, whoever else does; it may be nobody."""
    drawn = _numbers(problem, "participants", round_index).random(len(problem.able))
    share = problem.experiment.federation.participation
    return [client for client, number in zip(problem.able, drawn, strict=True) if number < share]


def noised(
    problem: Problem, dp: DP, round_index: int, params: Tensor, server: State, used: Sequence[Upload]
) -> tuple[list[Upload], State]:
    """All that the algorithm sees of a round: one upload, which is the noised mean; and the next clip.

    Updates are clipped again: in a federation, they come from sites that need not have.
    """
    clip, numbers = float(server.get(CLIP, dp.clip)), _numbers(problem, "noise", round_index)
    expected = problem.experiment.federation.participation * len(problem.able)
    noise, _ = dp.split(expected)
    mean = noised_mean([r.payload["update"] for r in used], params, clip, noise, expected, numbers)
    moved = next_clip(dp, clip, [r.metrics.get("update_norm", inf) for r in used], expected, numbers)
    after = {CLIP: scalar(moved)} if CLIP in server else {}
    return [Upload(client=-1, examples=1, payload={"update": mean})], after


def public_row(problem: Problem, dp: DP, rounds: int, server: State) -> dict[str, Any]:
    """What the record says of a round, and does not: nothing of single clients, not even who took part."""
    federation = problem.experiment.federation
    spent = rounds if problem.spent is None else max(rounds, problem.spent.stat().st_size)
    found = epsilon(dp.noise, federation.participation, spent, dp.delta)
    privacy = {
        "epsilon": found if isfinite(found) else None,
        "delta": dp.delta,
        "sampling": federation.participation,
        "counted": spent,
        "clip": float(server.get(CLIP, dp.clip)),
    }
    hidden: Mapping[str, Any] = dict.fromkeys(("train_loss", "worst_client", "examples", "bytes_up", "bytes_down"))
    return {**hidden, "clients": [], "privacy": privacy}


def secretly(problem: Problem, directory: Path) -> Problem:
    """The problem of a federation: with chance that nobody can predict, and a count of rounds that only grows."""
    if dp_of(problem.experiment) is None:
        return problem
    directory.mkdir(parents=True, exist_ok=True)
    return replace(problem, spent=directory / "attempts")


def count_attempt(problem: Problem) -> None:
    """Count a round before any client is asked: it costs even if it is repeated, here or after a crash."""
    if problem.spent is not None:
        append(problem.spent, b".")
        flush(problem.spent)


def refuse_buffers(experiment: Experiment, model: nn.Module) -> None:
    """Statistics of layers are averaged over clients, and no noise is added to them."""
    if dp_of(experiment) is not None and (buffers := read_buffers(model)):
        raise ConfigError(
            f"dp: the model has buffers ({next(iter(buffers))}), of which single clients' leak beside the noised mean;"
            ' use one without, for example with model.norm = "group"'
        )


def notes_on(experiment: Experiment, clients: int) -> list[str]:
    """What to know before a run."""
    dp = dp_of(experiment)
    if dp is None:
        return []
    notes = []
    if experiment.federation.participation == 1:
        notes.append("dp: every client takes part in every round (federation.participation = 1), which costs the most")
    if dp.delta * clients >= 1:
        notes.append(f"dp.delta: {dp.delta:g} is not below 1/{clients}: it allows to publish a client as it is")
    return notes


def _numbers(problem: Problem, purpose: str, round_index: int) -> Numbers:
    if problem.spent is not None:
        return SystemNumbers()
    return stream(problem.experiment.run.seed, purpose, round_index)


# Steps on the server's own samples


def server_steps(problem: Problem, params: Tensor, buffers: State, round_index: int) -> Tensor:
    """The parameters after the server's steps of a round, where the experiment has any."""
    part: ServerSteps | None = problem.experiment.parts.get("server_steps")
    if part is None or not part.steps or problem.server is None:
        return params
    model, samples = deepcopy(problem.model).to(problem.device), problem.server.open()
    problem.set_training(model)
    seed = problem.experiment.run.seed
    problem.spec.write(params, model)
    write_buffers(buffers, model)
    feed, loss = problem.feed(model), evaluation_of(problem.loss)
    optimizer = SGD(lr=part.lr, momentum=0.0).build(problem.spec.tensors(model), lr=part.lr)
    batch, rng = min(part.batch or len(samples), len(samples)), stream(seed, "server", round_index)
    with seeded(torch_seed(seed, "server", round_index)):
        for _ in range(part.steps):
            rows = torch.from_numpy(rng.permutation(len(samples))[:batch])
            targets = taken(samples.targets, rows).to(problem.device)
            optimizer.zero_grad()
            loss(feed.outputs(samples.inputs, rows), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return problem.spec.read(model).cpu()


def check_server_steps(problem: Problem) -> None:
    """Refuse steps on samples that are not there."""
    if "server_steps" in problem.experiment.parts and problem.server is None:
        raise ConfigError(
            "server_steps: the server has no samples; give Task(server=(X, y)), or set data.server_samples to how many"
            " of the training samples it gets"
        )
