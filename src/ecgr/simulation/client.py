"""One client's round: the only local training loop there is.

Every algorithm and every regulator goes through here. An algorithm may correct the gradient and the step; a
regulator sees the recorded steps afterwards; without a regulator nothing is recorded.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from ecgr.algorithms import Algorithm, Contribution, Plan, Trace
from ecgr.component import State
from ecgr.core.geometry import Regulation
from ecgr.core.recorder import Recorder
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES, check_room
from ecgr.core.vectors import ParamSpec, read_buffers
from ecgr.errors import NotFiniteWarning
from ecgr.simulation.user_code import user_code
from ecgr.simulation.workspace import Held, Problem, Workspace, seeded
from ecgr.streams import stream, torch_seed


@dataclass(frozen=True, slots=True, eq=False)
class ClientResult:
    """What goes up from one client: its contribution, its buffers, and numbers for the record."""

    contribution: Contribution
    buffers: Mapping[str, Tensor]
    steps: int
    train_loss: float
    seconds: float
    kept: tuple[int, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
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
        with user_code(f"round {self.round_index + 1}, client {self.client}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotFiniteWarning)  # a diverged upload is refused by `nonfinite`, in words
            return train_client(self, workspace)


def train_client(job: ClientJob, workspace: Workspace) -> tuple[ClientResult, State]:
    """Train one client from the global model, regulate its update and make its upload.

    Returns:
        What goes up, and the client's new state, which stays with it.
    """
    began = time.perf_counter()
    algorithm, optimizer = workspace.experiment.algorithm, workspace.experiment.optimizer
    plan = Plan(local_steps(workspace.problem, job.client), job.lr, optimizer.effective_momentum)
    job = replace(job, state=algorithm.begin(plan, job.server, job.state))
    trained = train(job, workspace)
    regulated = regulate(trained, workspace)
    result, state = report(job, workspace, trained, regulated)
    return replace(result, seconds=time.perf_counter() - began), state


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """One client's local training: where it started, what was recorded on the way, and what it came to."""

    start: Tensor
    steps: int
    loss: float
    recorder: Recorder | None


@dataclass(frozen=True, slots=True, eq=False)
class Regulated:
    """A client's update, ``start - end``: as trained, and as the regulator makes it; what recording and that took."""

    plain: Tensor
    update: Tensor
    regulation: Regulation | None = None
    seconds: float = 0.0


def train(job: ClientJob, workspace: Workspace) -> Trained:
    """Take the local steps; they are recorded where a regulator will ask for them."""
    experiment, model, spec = workspace.experiment, workspace.model, workspace.spec
    workspace.load(job.params, job.buffers)
    model.train()
    optimizer = experiment.optimizer.build(model.parameters(), lr=job.lr)
    term = experiment.algorithm.step_term(job.server, job.state)
    if term is not None:
        hook_step_term(term, job.lr, spec, model, optimizer)
    start = job.params.to(workspace.device)

    def take_steps() -> tuple[int, float]:
        with seeded(torch_seed(experiment.run.seed, "client", job.round_index, job.client)):
            return _local_epochs(job, workspace, optimizer)

    recorder: Recorder | None = None
    if not isinstance(experiment.regulator, Plain):
        recorder = Recorder(
            model,
            optimizer,
            store=experiment.run.store,
            spec=spec,
            steps=local_steps(workspace.problem, job.client),
            start=start,
            checks="versions",  # the loop is ours, and writes through no `.data`
        )
    with recorder or nullcontext():
        steps, loss = take_steps()
    return Trained(start, steps, loss, recorder)


def regulate(trained: Trained, workspace: Workspace) -> Regulated:
    """The client's update; without a regulator, as it was trained."""
    if trained.recorder is None:
        plain = trained.start - workspace.spec.read(workspace.model)
        return Regulated(plain, plain)
    began = time.perf_counter()
    made = trained.recorder.regulated(workspace.experiment.regulator)
    seconds = trained.recorder.seconds + time.perf_counter() - began
    return Regulated(trained.recorder.plain, made.flat, made.regulation, seconds)


def report(job: ClientJob, workspace: Workspace, trained: Trained, regulated: Regulated) -> tuple[ClientResult, State]:
    """What goes up, numbers for the record included, and the state that stays."""
    experiment = workspace.experiment
    momentum, recorded = experiment.optimizer.effective_momentum, trained.recorder is not None
    trace = Trace(regulated.update, regulated.plain, trained.steps, job.lr, momentum, regulated=recorded)
    server, own = _to(job.server, workspace.device), _to(job.state, workspace.device)
    state, payload = experiment.algorithm.finish(trace, server, own)
    examples = len(workspace.problem.partition.clients[job.client])

    result = ClientResult(
        contribution=Contribution(job.client, examples, _to(payload, "cpu")),
        buffers=_to(read_buffers(workspace.model, workspace.spec), "cpu"),
        steps=trained.steps,
        train_loss=trained.loss,
        seconds=0.0,
        kept=() if regulated.regulation is None else regulated.regulation.kept,
        metrics=_metrics(workspace, trained, regulated),
        picked_store=trained.recorder.store if trained.recorder and experiment.run.store == "auto" else None,
    )
    return result, _to(state, "cpu")


def _metrics(workspace: Workspace, trained: Trained, regulated: Regulated) -> dict[str, float]:
    """A client's numbers for the record."""
    metrics = {"update_norm": float(regulated.update.norm())}
    if trained.recorder is not None and regulated.regulation is not None:
        memory = STORES[trained.recorder.store].room(workspace.spec.size, trained.steps).memory
        metrics |= {**regulated.regulation.metrics, "steps_memory": memory, "regulation_seconds": regulated.seconds}
    return metrics


def _local_epochs(job: ClientJob, workspace: Workspace, optimizer: Optimizer) -> tuple[int, float]:
    """Train; the number of steps and the mean loss over the samples seen."""
    model, algorithm = workspace.model, workspace.experiment.algorithm
    server, own = _to(job.server, workspace.device), _to(job.state, workspace.device)
    anchor = job.params.to(workspace.device)
    loss_of = client_loss(job, workspace)
    correct = gradient_correction(algorithm, workspace.spec, model, anchor, server, own)
    steps, seen, total = 0, 0, torch.zeros((), dtype=torch.float64, device=workspace.device)
    for batch in epoch_batches(workspace.problem, job.client, job.round_index):
        optimizer.zero_grad()
        loss = loss_of(workspace.train, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        correct()
        optimizer.step()
        steps, seen = steps + 1, seen + len(batch)
        total += loss.detach() * len(batch)
    return steps, float(total) / seen


def client_loss(job: ClientJob, workspace: Workspace) -> Callable[[Held, Tensor], Tensor]:
    """What a client minimises on some rows of its samples.

    That is the problem's loss, or what it makes of the client's classes; it may also ask for the outputs of the model
    that the round started from.
    """
    problem = workspace.problem
    own: Callable[[Tensor], Any] | None = getattr(problem.loss, "for_client", None)
    loss: Any = problem.loss if own is None else own(torch.from_numpy(problem.class_counts[job.client]))
    if not getattr(problem.loss, "needs_teacher", False):
        return lambda samples, rows: loss(*workspace.training_batch(samples, rows))
    teacher = workspace.teacher(job.params, job.buffers)
    return lambda samples, rows: loss(*workspace.training_batch(samples, rows), teacher(samples, rows))


def check_store(problem: Problem, workers: int) -> None:
    """Refuse, before anything is trained, a ``run.store`` that cannot hold the longest clients' steps."""
    experiment = problem.experiment
    if isinstance(experiment.regulator, Plain):
        return
    clients = problem.partition.clients
    longest = max(range(len(clients)), key=lambda client: len(clients[client]))
    stores = min(workers, sum(len(own) > 0 for own in clients))
    check_room(experiment.run.store, problem.spec.size, local_steps(problem, longest), stores, problem.device)


def _to(state: State, device: torch.device | str) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in state.items()}


def nonfinite(result: ClientResult) -> str | None:
    """Why a result must not be aggregated: the first tensor with NaN or infinite values, and how many."""
    for name, tensor in {**result.contribution.payload, **result.buffers}.items():
        if tensor.is_floating_point() and not _has_finite_sum(tensor.numpy()):  # or too large a one: so count
            bad = tensor.numel() - int(np.count_nonzero(np.isfinite(tensor.numpy())))
            if bad:
                return f"nonfinite: {name} holds {bad} NaN or infinite values of {tensor.numel()}"
    return None


def _has_finite_sum(values: NDArray[np.floating[Any]]) -> bool:
    """A sum hides neither NaN nor infinity; numpy's, because torch would wake threads that the workers need."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(values.sum()))


# What an algorithm adds to a step


def gradient_correction(
    algorithm: Algorithm, spec: ParamSpec, model: nn.Module, anchor: Tensor, server: State, client: State
) -> Callable[[], None]:
    """What to call between backward and step: turns the gradient, then adds the algorithm's term to it."""
    turns = algorithm.direction(torch.zeros_like(anchor), server, client) is not None
    adds = algorithm.gradient_term(anchor, anchor, server, client) is not None
    tensors = spec.tensors(model) if turns or adds else []

    def correct() -> None:
        if turns:
            gradient = spec.flatten([torch.zeros_like(t) if t.grad is None else t.grad for t in tensors])
            for tensor, piece in _pieces(algorithm.direction(gradient, server, client)):
                tensor.copy_(piece)
        if adds:
            for tensor, piece in _pieces(algorithm.gradient_term(spec.flatten(tensors), anchor, server, client)):
                tensor.add_(piece)

    def _pieces(flat: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """The gradients that there are, each with its part of a flat vector."""
        assert flat is not None, "an algorithm corrects every step of a round, or none"
        pairs = zip(tensors, spec.views(flat), strict=True)
        return [(tensor.grad, piece) for tensor, piece in pairs if tensor.grad is not None]

    return correct


def hook_step_term(term: Tensor, lr: float, spec: ParamSpec, model: nn.Module, opt: Optimizer) -> None:
    """Subtract the learning rate times ``term`` after each step, before the recorder looks."""
    tensors = spec.tensors(model)
    pieces = list(spec.views((lr * term).to(tensors[0].device)))

    def correct(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.sub_(piece)

    opt.register_step_post_hook(correct)


# Which samples each local step sees


def epoch_batches(problem: Problem, client: int, round_index: int) -> Iterator[Tensor]:
    """The sample indices of every local step; the stream depends on seed, round and client alone."""
    federation = problem.experiment.federation
    own = problem.partition.clients[client]
    rng = stream(problem.experiment.run.seed, "batches", round_index, client)
    sizes = batch_sizes(len(own), federation.batch_size, federation.last_batch)
    for _ in range(federation.local_epochs):
        order = torch.from_numpy(rng.permutation(own))
        yield from torch.split(order[: sum(sizes)], sizes)


def local_steps(problem: Problem, client: int) -> int:
    """T, the number of steps that a client takes in a round."""
    federation = problem.experiment.federation
    samples = len(problem.partition.clients[client])
    return federation.local_epochs * len(batch_sizes(samples, federation.batch_size, federation.last_batch))


def batch_sizes(samples: int, batch_size: int, last_batch: str) -> list[int]:
    """The sizes of an epoch's batches.

    A last batch of a single sample is a step like any other ("keep"), joins the batch before it ("merge") or is left
    out ("drop"); longer ones are always steps, and so is the only batch of a client.

    >>> [batch_sizes(9, 4, rule) for rule in ("keep", "merge", "drop")]
    [[4, 4, 1], [4, 5], [4, 4]]
    >>> batch_sizes(6, 4, "merge")
    [4, 2]
    """
    whole, rest = divmod(samples, batch_size)
    sizes = [batch_size] * whole + ([rest] if rest else [])
    if len(sizes) > 1 and sizes[-1] == 1 and last_batch != "keep":
        sizes.pop()
        if last_batch == "merge":
            sizes[-1] += 1
    return sizes
