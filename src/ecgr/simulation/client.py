"""One client's round: the only local training loop there is.

Every algorithm and every regulator goes through here. An algorithm may add a term to the gradient and one to the
step; a regulator sees the recorded steps afterwards; without a regulator nothing is recorded.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from ecgr.algorithms import Contribution, Trace
from ecgr.component import State
from ecgr.core.geometry import Regulation
from ecgr.core.recorder import Recorder, Update
from ecgr.core.regulators import Plain
from ecgr.core.stores import EXACT, check_room
from ecgr.core.stores.room import BYTES_PER_NUMBER
from ecgr.core.vectors import ParamSpec, read_buffers, write_buffers
from ecgr.simulation.diagnostics import Vectors, cosine
from ecgr.simulation.followers import RecorderWithFollowers
from ecgr.simulation.running_statistics import forgotten, statistics_momentum
from ecgr.simulation.workspace import Problem, Workspace, batch_sizes, build_model
from ecgr.streams import stream, torch_seed


@dataclass(frozen=True, slots=True, eq=False)
class ClientResult:
    """What goes up from one client: its contribution, its statistics, and numbers for the record."""

    contribution: Contribution
    buffers: Mapping[str, Tensor]
    steps: int
    train_loss: float
    seconds: float
    kept: tuple[int, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    plain: Contribution | None = None
    vectors: Vectors | None = None
    picked_store: str | None = None

    @property
    def client(self) -> int:
        """Whose it is."""
        return self.contribution.client

    @property
    def examples(self) -> int:
        """Its weight."""
        return self.contribution.examples


@dataclass(frozen=True, slots=True, eq=False)
class ClientJob:
    """One client's work in one round; ``run`` gives what goes up and the state that stays."""

    client: int
    round_index: int
    lr: float
    cost: int
    params: Tensor
    buffers: Mapping[str, Tensor]
    server: State
    state: State

    def run(self, workspace: Workspace) -> tuple[ClientResult, State]:
        """Train this client in ``workspace``."""
        return train_client(self, workspace)


def train_client(job: ClientJob, workspace: Workspace) -> tuple[ClientResult, State]:
    """Train one client from the global model and make its upload.

    Returns:
        What goes up, and the client's new state, which stays with it.
    """
    began = time.perf_counter()
    experiment, model, spec = workspace.experiment, workspace.model, workspace.spec
    spec.write(job.params, model)
    write_buffers(job.buffers, model)
    model.train()
    optimizer = experiment.optimizer.build(model.parameters(), lr=job.lr)
    _hook_step_term(job, workspace, optimizer)

    start = job.params.to(workspace.device)

    def train() -> tuple[int, float]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(torch_seed(experiment.run.seed, "client", job.round_index, job.client))
            return _local_epochs(job, workspace, optimizer)

    def record(store: str) -> Recorder | RecorderWithFollowers:
        expected = local_steps(workspace.problem, job.client)
        make = RecorderWithFollowers if workspace.statistics_follow else Recorder
        return make(model, optimizer, store=store, spec=spec, steps=expected, start=start, replay=train)

    recording = not isinstance(experiment.regulator, Plain)
    recorder = record(experiment.run.store) if recording else None
    # Diagnostics of a store that answers with an error: the same steps, exactly, beside it.
    exact = record("disk") if recording and experiment.run.diagnostics and experiment.run.store not in EXACT else None
    with recorder or nullcontext(), exact or nullcontext():
        steps, train_loss = train()

    regulation: Regulation | None = None
    if recorder is None:
        plain = update = start - spec.read(model)
    else:
        regulated = recorder.regulated(experiment.regulator)
        plain, update, regulation = recorder.plain, regulated.flat, regulated.regulation

    trace = Trace(update, plain, steps, job.lr, experiment.optimizer.effective_momentum)
    server, own = _to(job.server, workspace.device), _to(job.state, workspace.device)
    state, payload = experiment.algorithm.finish(trace, server, own)
    examples = len(workspace.problem.partition.clients[job.client])
    result = ClientResult(
        contribution=Contribution(job.client, examples, _to(payload, "cpu")),
        buffers=_to(read_buffers(model, spec), "cpu"),
        steps=steps,
        train_loss=train_loss,
        seconds=time.perf_counter() - began,
        metrics={"update_norm": float(update.norm())},
    )
    if recorder is not None and regulation is not None:
        picked = recorder.store if experiment.run.store == "auto" else None
        memory = BYTES_PER_NUMBER.get(recorder.store, 0.0) * spec.size * steps
        metrics = {**result.metrics, **regulation.metrics, "steps_memory": memory}
        result = replace(result, kept=regulation.kept, metrics=metrics, picked_store=picked)
        if experiment.run.step_control == "match_plain":
            unregulated = experiment.algorithm.finish(replace(trace, update=plain), server, own)[1]
            result = replace(result, plain=Contribution(job.client, examples, _to(unregulated, "cpu")))
    followed = regulation if workspace.statistics_follow else None
    result = replace(result, metrics={**result.metrics, **_forgetting(workspace, followed, steps)})
    if experiment.run.diagnostics:
        known = exact or recorder
        kept = None if known is None else known.sum_of(result.kept).cpu()
        result = replace(result, vectors=Vectors(kept, plain.cpu(), update.cpu()))
    if exact is not None:
        fidelity = _fidelity(result.kept, update, exact.regulated(experiment.regulator))
        result = replace(result, metrics={**result.metrics, **fidelity})
    return result, _to(state, "cpu")


def _local_epochs(job: ClientJob, workspace: Workspace, optimizer: Optimizer) -> tuple[int, float]:
    """Train; the number of steps and the mean loss over the samples seen."""
    model, algorithm = workspace.model, workspace.experiment.algorithm
    server, own = _to(job.server, workspace.device), _to(job.state, workspace.device)
    anchor = job.params.to(workspace.device)
    tensors = workspace.spec.tensors(model)
    corrects_gradient = algorithm.gradient_term(anchor, anchor, server, own) is not None
    steps, seen, total = 0, 0, torch.zeros((), dtype=torch.float64, device=workspace.device)
    for batch in epoch_batches(job, workspace):
        images, labels = workspace.train_images[batch], workspace.train_labels[batch].to(workspace.device)
        optimizer.zero_grad()
        loss = cross_entropy(model(workspace.normalised(images)), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if corrects_gradient:
            term = algorithm.gradient_term(workspace.spec.flatten(tensors), anchor, server, own)
            assert term is not None
            for tensor, piece in zip(tensors, workspace.spec.views(term), strict=True):
                if tensor.grad is not None:
                    tensor.grad.add_(piece)
        optimizer.step()
        steps, seen = steps + 1, seen + len(batch)
        total += loss.detach() * len(batch)
    return steps, float(total) / seen


def local_steps(problem: Problem, client: int) -> int:
    """T, the number of steps that a client takes in a round."""
    federation = problem.experiment.federation
    samples = len(problem.partition.clients[client])
    return federation.local_epochs * len(batch_sizes(samples, federation.batch_size, federation.last_batch))


def check_store(problem: Problem, workers: int) -> None:
    """Refuse, before anything is trained, a ``run.store`` that cannot hold the longest clients' steps."""
    experiment = problem.experiment
    if isinstance(experiment.regulator, Plain):
        return
    as_weights = experiment.run.buffers == "as_weights"
    size = ParamSpec.of(build_model(problem), buffers_as_weights=as_weights).size
    clients = problem.partition.clients
    longest = max(range(len(clients)), key=lambda client: len(clients[client]))
    sets = min(workers, sum(len(own) > 0 for own in clients))
    check_room(experiment.run.store, size, local_steps(problem, longest), sets, problem.device)


def _forgetting(workspace: Workspace, regulation: Regulation | None, steps: int) -> dict[str, float]:
    """For models with BatchNorm: how much of the old statistics the upload takes away."""
    momentum = statistics_momentum(workspace.model)
    if momentum is None:
        return {}
    return {"forgotten": forgotten(torch.ones(steps) if regulation is None else regulation.coefficients, momentum)}


def _fidelity(kept: Sequence[int], update: Tensor, truth: Update) -> dict[str, float]:
    """How near a store that answers with an error comes to the exact answer."""
    return {
        "kept_overlap": overlap(kept, truth.regulation.kept),
        "update_cosine": cosine(update.double(), truth.flat.double()),
    }


def overlap(kept: Sequence[int], truth: Sequence[int]) -> float:
    """The share of ``truth`` that is in ``kept``.

    >>> overlap((1, 2), (2, 3))
    0.5
    """
    return len(set(kept) & set(truth)) / len(truth) if truth else 1.0


def epoch_batches(job: ClientJob, workspace: Workspace) -> Iterator[Tensor]:
    """The sample indices of every local step; the stream depends on seed, round and client alone."""
    federation = workspace.experiment.federation
    own = workspace.problem.partition.clients[job.client]
    rng = stream(workspace.experiment.run.seed, "batches", job.round_index, job.client)
    sizes = batch_sizes(len(own), federation.batch_size, federation.last_batch)
    for _ in range(federation.local_epochs):
        order = torch.from_numpy(rng.permutation(own))
        yield from torch.split(order[: sum(sizes)], sizes)


def _hook_step_term(job: ClientJob, workspace: Workspace, optimizer: Optimizer) -> None:
    """Subtract the learning rate times the algorithm's term after each step, before the recorder looks."""
    term = workspace.experiment.algorithm.step_term(job.server, job.state)
    if term is None:
        return
    tensors = workspace.spec.tensors(workspace.model)
    pieces = list(workspace.spec.views((job.lr * term).to(workspace.device)))

    def correct(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.sub_(piece)

    optimizer.register_step_post_hook(correct)


def _to(state: State, device: torch.device | str) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in state.items()}


def nonfinite(result: ClientResult) -> str | None:
    """Why a result must not be aggregated: the first tensor with NaN or infinite values, and how many."""
    for name, tensor in {**result.contribution.payload, **result.buffers}.items():
        if tensor.is_floating_point():
            bad = tensor.numel() - int(np.count_nonzero(np.isfinite(tensor.numpy())))
            if bad:
                return f"nonfinite: {name} holds {bad} NaN or infinite values of {tensor.numel()}"
    return None
