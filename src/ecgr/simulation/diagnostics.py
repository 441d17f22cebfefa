"""Why regulation helped or did not: the paper's quantities, measured in every round (``run.diagnostics = true``).

For one client, with the names of the paper's appendix: ``a`` the sum of the kept steps, ``b`` that of the others,
``c = a + b`` the plain update, ``v`` the regulated one. Directions to compare with: ``mu``, the gradient of the global
objective at the round's start; ``aggregate``, the round's own server step; ``previous``, the last one. Every number is
defined in docs/reference/diagnostics.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ecgr.core.recorder import Update
from ecgr.core.vectors import weighted_mean
from ecgr.errors import EnvironmentFault
from ecgr.simulation.engines.pool import Lost
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.streams import stream
from ecgr.tasks.losses import total

if TYPE_CHECKING:
    from ecgr.simulation.client import ClientResult
    from ecgr.simulation.engines import Engine
    from ecgr.simulation.rounds import Snapshot

SHARE = 2048
"""Training samples, drawn anew each round, on which ``mu`` is estimated."""
BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """What a client hands over for its diagnostics: a (None without regulation), c and v."""

    kept: Tensor | None
    plain: Tensor
    regulated: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class GradientJob:
    """The summed gradient of the loss over some training samples, at the global model."""

    samples: Tensor
    params: Tensor
    buffers: Mapping[str, Tensor]

    @property
    def cost(self) -> int:
        """Samples to go through."""
        return len(self.samples)

    def run(self, workspace: Workspace) -> Tensor:
        """In training mode, as the clients' own gradients are; the buffers this moves are overwritten anyway."""
        model, spec = workspace.model, workspace.spec
        workspace.load(self.params, self.buffers)
        model.train()
        model.zero_grad()
        outputs, targets = workspace.batch(workspace.train, self.samples)
        total(workspace.problem.loss, outputs, targets).backward()  # type: ignore[no-untyped-call]
        gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in spec.tensors(model)]
        return spec.flatten(gradients).cpu()


def gradient_jobs(
    problem: Problem, round_index: int, params: Tensor, buffers: Mapping[str, Tensor]
) -> Iterator[GradientJob]:
    """The jobs whose results sum up to ``mu``, times the number of samples."""
    dealt = torch.cat([torch.from_numpy(indices) for indices in problem.partition])
    order = stream(problem.experiment.run.seed, "diagnostics", round_index).permutation(len(dealt))[:SHARE]
    # Whole batches of one size: a batch norm over a rest of a few samples would be another objective.
    whole = max(BATCH, len(order) // BATCH * BATCH) if len(order) >= BATCH else len(order)
    for start in range(0, whole, BATCH):
        yield GradientJob(dealt[torch.from_numpy(order[start : start + BATCH])], params, buffers)


def client_diagnostics(vectors: Vectors, directions: Mapping[str, Tensor]) -> dict[str, float]:
    """One client's numbers; 1.0 and 0.0 stand for yes and no.

    >>> x = torch.tensor
    >>> found = client_diagnostics(Vectors(x([1.0, 0.0]), x([1.0, 1.0]), x([1.4, 0.2])), {"mu": x([1.0, 0.0])})
    >>> found["cos_a_mu"], found["cos_b_mu"], found["assumption_mu"], found["conclusion_mu"]
    (1.0, 0.0, 1.0, 1.0)
    """
    c, v = vectors.plain.double(), vectors.regulated.double()
    if vectors.kept is None:
        return {f"cos_c_{name}": cosine(c, direction.double()) for name, direction in directions.items()}
    a = vectors.kept.double()
    b = c - a
    numbers = {
        "norm_a": float(a.norm()),
        "norm_b": float(b.norm()),
        "cos_a_b": cosine(a, b),
        "cos_v_c": cosine(v, c),
    }
    for name, direction in directions.items():
        cosines = {letter: cosine(x, direction.double()) for letter, x in zip("abcv", (a, b, c, v), strict=True)}
        numbers |= {f"cos_{letter}_{name}": value for letter, value in cosines.items()}
        numbers[f"assumption_{name}"] = float(cosines["a"] > cosines["b"])
        numbers[f"conclusion_{name}"] = float(cosines["v"] > cosines["c"])
    return numbers


def round_diagnostics(
    clients: Sequence[Vectors], examples: Sequence[int], directions: Mapping[str, Tensor]
) -> dict[str, float]:
    """Numbers across the clients of a round."""
    regulated = [vectors.regulated for vectors in clients]
    after = weighted_mean(regulated, examples).double()
    before = weighted_mean([vectors.plain for vectors in clients], examples).double()
    shares = [count / sum(examples) for count in examples]
    spread = sum(share * float(x.double().square().sum()) for share, x in zip(shares, regulated, strict=True))
    length = float(after.square().sum())
    return {
        "drift": sum(share * float(x.plain.norm()) for share, x in zip(shares, clients, strict=True)),
        "gradient_diversity": spread / length if length else 0.0,
        "pairwise_cosine": mean_pairwise_cosine(regulated),
        "norm_ratio": float(after.norm()) / float(before.norm()) if float(before.norm()) else 0.0,
        **{f"cos_before_{name}": cosine(before, direction.double()) for name, direction in directions.items()},
        **{f"cos_after_{name}": cosine(after, direction.double()) for name, direction in directions.items()},
    }


def cosine(x: Tensor, y: Tensor) -> float:
    """The cosine of the angle between two vectors; 0 where one of them has no direction."""
    lengths = float(x.norm()) * float(y.norm())
    return float(x @ y) / lengths if lengths else 0.0


def mean_pairwise_cosine(vectors: Sequence[Tensor]) -> float:
    """The mean cosine over all pairs of different clients; 1 for a client alone.

    >>> mean_pairwise_cosine([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.0])])
    0.3333333333333333
    """
    count = len(vectors)
    if count < 2:
        return 1.0
    # With unit vectors u_i, the sum over all ordered pairs i != j of <u_i, u_j> is |sum u_i|^2 - sum |u_i|^2.
    units = [x.double() / float(x.norm()) if float(x.norm()) else x.double() for x in vectors]
    total = float(torch.stack(units).sum(dim=0).square().sum()) - sum(float(u.square().sum()) for u in units)
    return total / (count * (count - 1))


def directions(problem: Problem, engine: "Engine", snapshot: "Snapshot", step: Tensor) -> dict[str, Tensor]:
    """What diagnostics compare updates with: the true gradient, the round's own step, the last one."""
    total = torch.zeros_like(snapshot.params)
    for gradient in engine.map(list(gradient_jobs(problem, snapshot.rounds, snapshot.params, snapshot.buffers))):
        if isinstance(gradient, Lost):
            raise EnvironmentFault(f"the diagnostics were lost: {gradient.reason}")
        total += gradient
    previous = {} if snapshot.step is None else {"previous": snapshot.step}
    return {"mu": total, "aggregate": step, **previous}


def add_diagnostics(row: dict[str, Any], used: "Sequence[ClientResult]", directions: Mapping[str, Tensor]) -> None:
    """Put what the vectors of a round say into its line and into those of its clients."""
    vectors = [r.vectors for r in used if r.vectors is not None]
    for client_row, own in zip(row["clients"], vectors, strict=True):
        client_row["diagnostics"] = client_diagnostics(own, directions)
    row["diagnostics"] = round_diagnostics(vectors, [r.examples for r in used], directions)


def fidelity(kept: Sequence[int], update: Tensor, truth: Update) -> dict[str, float]:
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
