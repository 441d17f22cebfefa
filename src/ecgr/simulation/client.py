"""One client's round: train, regulate, upload. The simulator and a Flower site run the same code.

Every algorithm and every regulator goes through here. An algorithm may correct the gradient and the step; a
regulator sees the recorded steps afterwards.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from ecgr.algorithms import Plan, Trace, Upload
from ecgr.algorithms.base import corrector, outside
from ecgr.component import State
from ecgr.core.recorder import Recorder
from ecgr.core.regulators import Plain
from ecgr.core.stores import check_room
from ecgr.errors import ConfigError, EcgrError, NotFiniteWarning, one_line
from ecgr.simulation.by_hand import Epoch, Trained, qualifies, train_by_hand
from ecgr.simulation.server import clip_upload
from ecgr.simulation.workspace import LOCAL, Problem, Workspace, seeded
from ecgr.streams import stream, torch_seed


@dataclass(frozen=True, slots=True, eq=False)
class OfClient:
    """What is known of a client in a round: the global model, and its own state, which stays with it."""

    client: int
    round_index: int
    lr: float
    cost: int
    params: Tensor
    buffers: Mapping[str, Tensor]
    state: State


@dataclass(frozen=True, slots=True, eq=False)
class ClientJob(OfClient):
    """One client's training in one round; ``run`` gives its upload and its new state."""

    server: State

    def run(self, workspace: Workspace) -> tuple[Upload, State]:
        with user_code(f"round {self.round_index + 1}, client {self.client}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NotFiniteWarning)  # a diverged upload is refused by `nonfinite`, in words
            return train_client(self, workspace)


def train_client(job: ClientJob, workspace: Workspace) -> tuple[Upload, State]:
    """Train one client from the global model, regulate its update, and make its upload and its new state."""
    began = time.perf_counter()
    experiment, device = workspace.experiment, workspace.device
    plan = Plan(local_steps(workspace.problem, job.client), job.lr, experiment.optimizer.effective_momentum)
    server = _to(job.server, device)
    state = _to(experiment.algorithm.begin(plan, job.server, outside(LOCAL, job.state)), device)
    trained = train(job, workspace, server, state)
    trace, kept, metrics = regulate(plan, trained, workspace)
    after, payload = experiment.algorithm.finish(clip_upload(experiment, job.server, trace), server, state)
    held = None if isinstance(trained.update, Tensor) else trained.update.rows.name
    upload = Upload(
        client=job.client,
        examples=len(workspace.problem.partition.clients[job.client]),
        payload=_to(payload, "cpu"),
        buffers=_to(workspace.problem.shared_buffers(workspace.model), "cpu") if job.buffers else {},
        steps=plan.steps,
        train_loss=trained.loss,
        seconds=time.perf_counter() - began,
        kept=kept,
        metrics=metrics,
        store=held if experiment.run.store == "auto" else None,
    )
    return upload, {**_to(after, "cpu"), **workspace.local_state()}


def train(job: ClientJob, workspace: Workspace, server: State, state: State) -> Trained:
    """Take the local steps, by hand where the model is known; without a regulator nothing is recorded."""
    if qualifies(workspace):
        own = [*epoch_orders(workspace.problem, job.client, job.round_index)]
        return train_by_hand(workspace, job, server, state, own)
    return train_by_autograd(job, workspace, server, state)


def train_by_autograd(job: ClientJob, workspace: Workspace, server: State, state: State) -> Trained:
    """The steps of any model with any loss and optimiser.

    A step is the optimiser's, with the algorithm's corrections before and after it; the recorder sees all of it.
    """
    experiment, model = workspace.experiment, workspace.model
    workspace.load(job.params, job.buffers, job.state)
    workspace.problem.set_training(model)
    start = job.params.to(workspace.device)
    loss_of = client_loss(job, workspace)
    optimizer = experiment.optimizer.build(model.parameters(), lr=job.lr)
    hook_corrections(optimizer, workspace, start, job.lr, server, state)
    recorder: Recorder | None = None
    if not isinstance(experiment.regulator, Plain):
        recorder = Recorder(  # its hooks come after the corrections'
            model,
            optimizer,
            store=experiment.run.store,
            spec=workspace.spec,
            steps=local_steps(workspace.problem, job.client),
            start=start,
            checks="versions",  # the loop is ours, and writes through no `.data`
        )
    seen, total = 0, torch.zeros((), dtype=torch.float64, device=workspace.device)
    seed = torch_seed(experiment.run.seed, "client", job.round_index, job.client)
    with recorder or nullcontext(), seeded(seed):
        for step, batch in enumerate(epoch_batches(workspace.problem, job.client, job.round_index)):
            workspace.moment = experiment.run.seed, job.round_index, job.client, step
            optimizer.zero_grad()
            loss = loss_of(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            seen += len(batch)
            total += loss.detach() * len(batch)
    update = start - workspace.spec.read(model) if recorder is None else recorder.recorded()
    return Trained(update, float(total) / seen)


def fine_tune(job: OfClient, workspace: Workspace, steps: int, lr: float) -> None:
    """Take plain steps on a client's training samples, from the model that is loaded."""
    problem = workspace.problem
    problem.set_training(workspace.model)
    loss_of = client_loss(job, workspace)
    optimizer = problem.experiment.optimizer.build(workspace.model.parameters(), lr=lr)
    count = -(-steps // len(batch_sizes_of(problem, job.client)))
    with seeded(torch_seed(problem.experiment.run.seed, "fine-tuning", job.round_index, job.client)):
        for batch in islice(epoch_batches(problem, job.client, job.round_index, "fine-tuning", count), steps):
            optimizer.zero_grad()
            loss_of(batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def regulate(plan: Plan, trained: Trained, workspace: Workspace) -> tuple[Trace, tuple[int, ...], dict[str, float]]:
    """The client's update, ``start - end``, as the regulator makes it; the steps it kept; numbers for the record."""
    steps = trained.update
    if isinstance(steps, Tensor):
        trace = Trace(steps, steps, plan.steps, plan.lr, plan.momentum)
        return trace, (), {"update_norm": float(torch.linalg.vector_norm(steps))}
    began = time.perf_counter()
    made = steps.regulated(workspace.experiment.regulator)
    seconds = steps.seconds + time.perf_counter() - began
    trace = Trace(made.flat, steps.plain, plan.steps, plan.lr, plan.momentum, regulated=True)
    metrics = {
        "update_norm": float(made.flat.norm()),
        **made.regulation.metrics,
        "steps_memory": steps.rows.room(workspace.spec.size, plan.steps).memory,
        "regulation_seconds": seconds,
    }
    return trace, made.regulation.kept, metrics


def client_loss(job: OfClient, workspace: Workspace) -> Callable[[Tensor], Tensor]:
    """What a client minimises on some rows of its samples.

    A loss may also ask for the outputs of the model that the round started from.
    """
    loss = workspace.problem.loss_of(job.client)
    if not getattr(workspace.problem.loss, "needs_teacher", False):
        return lambda rows: loss(*workspace.batch(workspace.train, rows, training=True))
    teacher = workspace.teacher(job.params, job.buffers)
    return lambda rows: loss(*workspace.batch(workspace.train, rows, training=True), teacher(rows))


def check_store(problem: Problem, workers: int) -> None:
    """Refuse, before anything is trained, a ``run.store`` that cannot hold the longest clients' steps."""
    experiment = problem.experiment
    if isinstance(experiment.regulator, Plain):
        return
    clients = problem.partition.clients
    longest = max(range(len(clients)), key=lambda client: len(clients[client]))
    stores = min(workers, len(problem.able))
    check_room(experiment.run.store, problem.spec.size, local_steps(problem, longest), stores, problem.device)


def _to(state: State, device: torch.device | str) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in state.items()}


def nonfinite(upload: Upload) -> str | None:
    """Why an upload must not be aggregated: the first tensor with NaN or infinite values, and how many."""
    for name, tensor in {**upload.payload, **upload.buffers}.items():
        # by numpy, because torch would wake threads that the workers need
        bad = tensor.numel() - np.count_nonzero(np.isfinite(tensor.numpy()))
        if bad:
            return f"nonfinite: {name} holds {bad} NaN or infinite values of {tensor.numel()}"
    return None


# What an algorithm adds to a step


def hook_corrections(
    optimizer: Optimizer, workspace: Workspace, anchor: Tensor, lr: float, server: State, client: State
) -> None:
    """Have every step of ``optimizer`` corrected: its gradient before, the parameters after it.

    What an algorithm does not correct costs nothing.
    """
    algorithm, spec = workspace.experiment.algorithm, workspace.spec
    tensors = spec.tensors(workspace.model)
    correct, term = corrector(algorithm, anchor, server, client), algorithm.step_term(server, client)
    if correct is not None:

        def correct_gradients(*_: Any) -> None:
            flat = spec.flatten([torch.zeros_like(t) if t.grad is None else t.grad for t in tensors])
            correct(flat, spec.flatten(tensors))
            for tensor, piece in zip(tensors, spec.views(flat), strict=True):
                if tensor.grad is not None:
                    tensor.grad.copy_(piece)

        optimizer.register_step_pre_hook(correct_gradients)
    if term is not None:
        pieces = list(spec.views(lr * term))

        def correct_step(*_: Any) -> None:
            with torch.no_grad():
                for tensor, piece in zip(tensors, pieces, strict=True):
                    tensor.sub_(piece)

        optimizer.register_step_post_hook(correct_step)


# Which samples each local step sees


def epoch_batches(
    problem: Problem, client: int, round_index: int, purpose: str = "batches", epochs: int | None = None
) -> Iterator[Tensor]:
    """The sample indices of every local step."""
    for order, sizes in epoch_orders(problem, client, round_index, purpose, epochs):
        yield from torch.split(order, sizes)


def epoch_orders(
    problem: Problem, client: int, round_index: int, purpose: str = "batches", epochs: int | None = None
) -> Iterator[Epoch]:
    """The sample indices of every epoch, and the sizes of its batches.

    The stream depends on seed, purpose, round and client alone.
    """
    own, sizes = problem.partition.clients[client], batch_sizes_of(problem, client)
    rng = stream(problem.experiment.run.seed, purpose, round_index, client)
    for _ in range(epochs or problem.experiment.federation.local_epochs):
        yield torch.from_numpy(rng.permutation(own))[: sum(sizes)], sizes


def local_steps(problem: Problem, client: int) -> int:
    """T, the number of steps that a client takes in a round."""
    return problem.experiment.federation.local_epochs * len(batch_sizes_of(problem, client))


def batch_sizes_of(problem: Problem, client: int) -> list[int]:
    """The sizes of the batches of a client's epoch.

    An epoch has all of its samples, or of pooled ones as many as a round's participants have.
    """
    federation, count = problem.experiment.federation, len(problem.partition.clients[client])
    if problem.experiment.partition.pooled:
        count = max(1, round(federation.participation * count))
    return batch_sizes(count, federation.batch_size, federation.last_batch)


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


# Errors in user code


NOT_USER_CODE = frozenset({"ecgr", "torch", "numpy", "scipy", "sklearn", *sys.stdlib_module_names}) - {"__main__"}


@contextmanager
def user_code(where: str) -> Iterator[None]:
    """What user code raises in this block becomes one line; what ecgr raises stays as it is."""
    try:
        yield
    except EcgrError:
        raise
    except Exception as error:
        passed = [
            (frame.f_code, line)
            for frame, line in walk_tb(error.__traceback__)
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in NOT_USER_CODE
        ]
        if not passed:
            raise
        code, line = passed[-1]  # the innermost line of user code
        place = f"{Path(code.co_filename).name}, line {line}, in {code.co_name}"
        raise ConfigError(f"{where}: {one_line(error)} ({place})") from error
