"""The ceiling of regulation: FedAvg whose clients are told where to go, with the server's step as long as plain.

::

    python -m study ceiling OUT [WORKERS]     what is finished in OUT is not run again

Local training is plain, at one learning rate for all. Then steps are recombined towards a *target*, each client's
update keeps its length, and the server's step gets the length that the plain updates would have given it: what is left
is direction. Targets that nobody has: the true gradient at the round's start, the displacement of an epoch on
everybody's data. Targets that a server has: its last step, its momentum, SCAFFOLD's control (the clients' last mean
gradient).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import torch
from torch import Tensor

from ecgr.algorithms import Plan
from ecgr.core.geometry import Geometry
from ecgr.core.regulators import ECGR
from ecgr.core.vectors import weighted_mean
from ecgr.simulation.batches import batch_sizes, epoch_batches
from ecgr.simulation.diagnostics import cosine, gradient_jobs
from ecgr.simulation.engines import SerialEngine, one_thread
from ecgr.simulation.rounds import Snapshot, evaluate, learning_rate, start
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.streams import stream
from study.recombination import best_weights

MOMENTUM = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """A round's plain training: the steps of each client, (T_i, d), their examples, and what the server remembers."""

    problem: Problem
    workspace: Workspace
    at: Snapshot
    steps: Sequence[Tensor]
    examples: Sequence[int]
    memory: Mapping[str, Tensor]

    @property
    def lr(self) -> float:
        """The local learning rate."""
        return learning_rate(self.problem, self.at.rounds)

    @property
    def updates(self) -> list[Tensor]:
        """The plain update of each client."""
        return [own.sum(dim=0) for own in self.steps]

    @property
    def plain(self) -> Tensor:
        """FedAvg's step."""
        return weighted_mean(self.updates, self.examples)


Target = Callable[[Round], Tensor | None]
Choice = Callable[[Round, Tensor], Tensor]


def gradient(now: Round) -> Tensor:
    """The gradient of everybody's loss at the round's start."""
    jobs = gradient_jobs(now.problem, now.at.rounds, now.at.params, now.at.buffers)
    return torch.stack([job.run(now.workspace) for job in jobs]).sum(dim=0)


def epoch(now: Round) -> Tensor:
    """The displacement of one epoch over the data of all clients together, from the round's start."""
    dealt = torch.cat([torch.from_numpy(own) for own in now.problem.partition])
    federation = now.problem.experiment.federation
    order = stream(now.problem.experiment.run.seed, "central", now.at.rounds).permutation(len(dealt))
    sizes = batch_sizes(len(dealt), federation.batch_size, federation.last_batch)
    return take_steps(now.workspace, now.at.params, torch.split(dealt[torch.from_numpy(order)], sizes), now.lr).sum(0)


def remembered(name: str) -> Target:
    """Something that the server knows from rounds before; nothing in the first."""
    return lambda now: now.memory.get(name)


def own_steps(*, signed: bool) -> Choice:
    """Each client recombines its own steps as best it can; its update keeps its length."""

    def choose(now: Round, target: Tensor) -> Tensor:
        made = [recombined(own, target, signed=signed) for own in now.steps]
        return weighted_mean(made, now.examples)

    return choose


def clients(now: Round, target: Tensor) -> Tensor:
    """One weight for each client's plain update, not negative, chosen together."""
    return recombined(torch.stack(now.updates), target, signed=False)


def all_steps(now: Round, target: Tensor) -> Tensor:
    """One weight for each step of each client, not negative, chosen together."""
    return recombined(torch.cat(list(now.steps)), target, signed=False)


def itself(now: Round, target: Tensor) -> Tensor:
    """The target's own direction."""
    return target


def regulated(now: Round, target: Tensor) -> Tensor:
    """ECGR, which knows no target."""
    made = []
    for own in now.steps:
        rows = own.double()
        made.append((ECGR()(Geometry(rows @ rows.T)).coefficients @ rows).float())
    return weighted_mean(made, now.examples)


def recombined(steps: Tensor, target: Tensor, *, signed: bool) -> Tensor:
    """The combination of ``steps`` with the largest cosine with ``target``, as long as their sum.

    Where no combination points towards the target, the sum itself.
    """
    rows, plain = steps.double(), steps.sum(dim=0)
    inner = rows @ target.double()
    weights = best_weights((rows @ rows.T).numpy(), inner.numpy(), signed=signed)
    if weights is None:
        return plain
    made = torch.from_numpy(weights) @ rows
    return (made * (float(plain.norm()) / float(made.norm()))).float()


TARGETS: Mapping[str, Target] = {
    "gradient": gradient,
    "epoch": epoch,
    **{name: remembered(name) for name in ("previous", "momentum", "control")},
}
CHOICES: Mapping[str, Choice] = {
    "own steps": own_steps(signed=True),
    "own steps >= 0": own_steps(signed=False),
    "clients >= 0": clients,
    "all steps >= 0": all_steps,
    "itself": itself,
    "ecgr": regulated,
}
PLAIN = "plain"
ARMS: Mapping[str, tuple[str, str] | None] = {
    PLAIN: None,
    "ecgr": ("epoch", "ecgr"),
    **{f"{target}: own steps >= 0": (target, "own steps >= 0") for target in TARGETS},
    **{f"{target}: own steps": (target, "own steps") for target in ("gradient", "epoch")},
    **{f"epoch: {choice}": ("epoch", choice) for choice in ("clients >= 0", "all steps >= 0", "itself")},
    "gradient: itself": ("gradient", "itself"),
}
"""A target and a choice for every arm; plain has neither, and ECGR is held against the epoch without using it."""


@dataclass(frozen=True, slots=True)
class Course:
    """What an arm came to: accuracy and length of the server's step by round, mean cosines with the target.

    Rounds after training diverged have neither.
    """

    values: tuple[float | None, ...]
    step_norms: tuple[float | None, ...]
    plain_cosine: float | None
    cosine: float | None


def follow(problem: Problem, arm: str) -> Course:
    """All rounds of one arm."""
    workspace, engine, now = Workspace(problem), SerialEngine(problem), start(problem)
    memory: dict[str, Tensor] = {}
    values, norms, cosines = [], [], []
    chosen = ARMS[arm]
    with one_thread():
        for _ in range(problem.experiment.federation.rounds):
            trained = _train(problem, workspace, now, memory)
            if not all(own.isfinite().all() for own in trained.steps):
                break
            step = plain = trained.plain
            target = None if chosen is None else TARGETS[chosen[0]](trained)
            if chosen is not None and target is not None:
                made = CHOICES[chosen[1]](trained, target)
                step = made * (float(plain.norm()) / float(made.norm()))
                cosines.append((cosine(plain.double(), target.double()), cosine(step.double(), target.double())))
            memory = _remember(trained, memory, step)
            now = Snapshot(now.rounds + 1, now.params - step, now.buffers, now.server, now.clients)
            values.append(evaluate(problem, engine, now).metrics[problem.metrics[0].name])
            norms.append(float(step.norm()))
    before, after = (fmean(column) for column in zip(*cosines, strict=True)) if cosines else (None, None)
    lost = (None,) * (problem.experiment.federation.rounds - len(values))
    return Course((*values, *lost), (*norms, *lost), before, after)


def take_steps(workspace: Workspace, params: Tensor, batches: Iterable[Tensor], lr: float) -> Tensor:
    """Plain local training; the displacement of every step, (T, d)."""
    model, spec, loss = workspace.model, workspace.spec, workspace.problem.loss
    spec.write(params, model)
    model.train()
    optimizer = workspace.experiment.optimizer.build(model.parameters(), lr=lr)
    places = [params]
    for batch in batches:
        optimizer.zero_grad()
        loss(*workspace.training_batch(workspace.train, batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        places.append(spec.read(model))
    return torch.stack([before - after for before, after in pairwise(places)])


def _train(problem: Problem, workspace: Workspace, now: Snapshot, memory: Mapping[str, Tensor]) -> Round:
    """Everybody trains."""
    lr, sizes = learning_rate(problem, now.rounds), problem.partition.sizes()
    able = [client for client, size in enumerate(sizes) if size]
    steps = [take_steps(workspace, now.params, epoch_batches(problem, own, now.rounds), lr) for own in able]
    return Round(problem, workspace, now, steps, [sizes[own] for own in able], memory)


def _remember(trained: Round, memory: Mapping[str, Tensor], step: Tensor) -> dict[str, Tensor]:
    """What a server knows after a round: its step, a momentum of its steps, the mean gradient of the clients."""
    momentum = trained.problem.experiment.optimizer.effective_momentum
    effective = [Plan(len(own), trained.lr, momentum).effective_steps for own in trained.steps]
    controls = [update / (trained.lr * a) for update, a in zip(trained.updates, effective, strict=True)]
    return {
        "previous": step,
        "momentum": step + MOMENTUM * memory["momentum"] if memory else step,
        "control": weighted_mean(controls, trained.examples),
    }
