"""A closed-form head on a finished model: the features that enter its last layer, their sums by client, the solution.

Which layer that is, is read from the module: the last ``nn.Linear`` that it defines, whose output must be the model's.
A client's samples go through the model in fixed shards, in order, so that its sums have the same bits everywhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ecgr.algorithms.heads import added, solve, sums
from ecgr.component import State
from ecgr.core.vectors import bare_model
from ecgr.errors import ConfigError, Diverged
from ecgr.simulation.engines import Engine, results
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.tasks.losses import BCE, MSE, CrossEntropy, evaluation_of

ROWS = 1000
KINDS: Mapping[str, tuple[Any, ...]] = {
    "classes": (CrossEntropy, nn.CrossEntropyLoss, nn.functional.cross_entropy),
    "labels": (BCE, nn.BCEWithLogitsLoss, nn.functional.binary_cross_entropy_with_logits),
    "numbers": (MSE, nn.MSELoss, nn.functional.mse_loss),
}
"""What targets are, with the losses, or their classes, that say so."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """What all clients' samples add up to, how many clients were asked and sent theirs, and why others did not."""

    total: State
    asked: int
    sent: int
    rejected: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SumsJob:
    """The sums of one client's samples, of the features that a model makes of them."""

    client: int
    params: Tensor
    buffers: Mapping[str, Tensor]
    cost: int

    @torch.no_grad()
    def run(self, workspace: Workspace) -> dict[str, Tensor]:
        workspace.load(self.params, self.buffers)
        model = workspace.model.eval()
        own = torch.from_numpy(workspace.problem.partition.clients[self.client])
        _, layer = last_layer(model)
        features: list[Tensor] = []

        def part(rows: Tensor) -> State:
            _, targets = workspace.batch(workspace.train, rows)
            return sums(features.pop().cpu(), encoded(workspace.problem, targets.cpu()))

        hook = layer.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
        try:
            return added(map(part, torch.split(own, ROWS)))
        finally:
            hook.remove()


def head_round(problem: Problem) -> int | None:
    """The round after which a head is solved: the last, or the first where no client takes a step."""
    if "head" not in problem.experiment.parts:
        return None
    return problem.experiment.federation.rounds if problem.trains else 1


def holders(problem: Problem) -> list[int]:
    """The clients that send sums: those with samples, and ``min_count`` of them."""
    least = problem.experiment.parts["head"].min_count
    return [client for client, size in enumerate(problem.partition.sizes()) if size >= least]


def collect_sums(problem: Problem, engine: Engine, params: Tensor, buffers: Mapping[str, Tensor]) -> Sums:
    """The sums of all clients, in client order, of the features that a model makes."""
    clients, sizes = holders(problem), problem.partition.sizes()
    jobs = [SumsJob(client, params, buffers, sizes[client]) for client in clients]

    def parts() -> Iterator[State]:
        for client, part in zip(clients, results(engine, jobs, "the sums were lost"), strict=True):
            if not all(torch.isfinite(tensor).all() for tensor in part.values()):
                raise Diverged(
                    f"head: the features of client {client} are not finite; a smaller optimizer.lr often helps"
                )
            yield part

    return Sums(added(parts()), len(clients), len(clients))


def solved(problem: Problem, total: State) -> dict[str, Tensor]:
    """Weight and bias of the last layer, in float64, from the sums of all clients."""
    weight, bias = solve(problem.experiment.parts["head"], total, kind_of(problem))
    if not (torch.isfinite(weight).all() and torch.isfinite(bias).all()):
        raise Diverged("head: the solution is not finite; a larger lam or shrinkage often helps")
    return {"weight": weight, "bias": bias}


def with_head(problem: Problem, params: Tensor, head: State) -> Tensor:
    """Parameters with the weight and the bias of the last layer set."""
    name, _ = last_layer(problem.model)
    params = params.clone()
    pieces = problem.spec.named(params)
    for part, tensor in head.items():
        pieces[f"{name}{part}"].copy_(tensor)
    return params


def last_layer(model: nn.Module) -> tuple[str, nn.Linear]:
    """The last linear layer that a model defines, and what the names of its parameters begin with."""
    model = bare_model(model)
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ConfigError(f"head: {type(model).__name__} has no nn.Linear; expected one that makes the model's output")
    name, layer = linear[-1]
    return f"{name}." if name else "", layer


def kind_of(problem: Problem) -> str:
    """What the targets are for a head: ``classes``, ``binary`` (one output), ``labels`` or ``numbers``."""
    own: Any = evaluation_of(problem.loss)
    kind = next((kind for kind, known in KINDS.items() if own in known or type(own) in known), None)
    if kind is None:
        name = getattr(own, "__name__", type(own).__name__)
        raise ConfigError(f"head: the loss {name} has no closed form; expected cross_entropy, bce or mse")
    return "binary" if kind == "labels" and last_layer(problem.model)[1].out_features == 1 else kind


def encoded(problem: Problem, targets: Tensor) -> Tensor:
    """Targets as the numbers that a head regresses on, (samples, targets)."""
    kind = kind_of(problem)
    if kind == "classes":
        return nn.functional.one_hot(targets.long(), last_layer(problem.model)[1].out_features)
    rows = targets.reshape(len(targets), -1).double()
    if kind == "numbers":
        return rows
    return torch.cat([1 - rows, rows], dim=1) if kind == "binary" else 2 * rows - 1


def expected_part(problem: Problem) -> dict[str, Tensor]:
    """What a client's sums are like: those of no sample."""
    _, layer = last_layer(problem.model)
    targets = 2 if kind_of(problem) == "binary" else layer.out_features
    return sums(torch.zeros(0, layer.in_features), torch.zeros(0, targets))


def check_head(problem: Problem) -> None:
    """Refuse a model, a loss or a number of samples that a head cannot be solved for."""
    head = problem.experiment.parts.get("head")
    if head is None:
        return
    name, layer = last_layer(problem.model)
    kind, called = kind_of(problem), name.removesuffix(".") or "the model itself"
    if kind not in head.kinds:
        raise ConfigError(f"head.name: {type(head).__name__} is for classes, and the targets are {kind}; use ridge")
    if not holders(problem):
        raise ConfigError(f"head.min_count: no client has {head.min_count} samples")
    owned = [f"{name}{part}" for part in ("weight", "bias")]
    uses = [p for module in bare_model(problem.model).modules() for p in module._parameters.values()]
    free = layer.bias is not None and sum(p is layer.weight for p in uses) == 1
    if not free or not set(owned) <= set(problem.spec.names):
        raise ConfigError(
            f"head: the last linear layer ({called}) must be trainable, have a bias, and share no weights"
        )
    if len(problem.test) and not _makes_the_output(problem):
        raise ConfigError(
            f"head: the last linear layer that the model defines ({called}) does not make the model's output from"
            " features (samples, numbers); expected a model that ends with it"
        )


@torch.no_grad()
def _makes_the_output(problem: Problem) -> bool:
    """Whether what the last layer gives for two samples is what the model gives."""
    model, seen = deepcopy(problem.model).eval(), []
    last_layer(model)[1].register_forward_hook(
        lambda _, inputs, output: seen.append((inputs[0], output, output.clone()))
    )
    with torch.random.fork_rng(devices=[]):
        outputs = problem.feed(model).outputs(problem.test.open().inputs, slice(0, 2))
    if len(seen) != 1 or seen[0][0].ndim != 2:
        return False
    _, output, copy = seen[0]
    return output.data_ptr() == outputs.data_ptr() and torch.equal(copy.reshape(-1), outputs.reshape(-1))
