"""What a round does to BatchNorm's running statistics.

A step moves them by ``momentum * (old - batch)``, so what a client uploads takes a share of the old value away; with
coefficients c_j that share is the sum of ``c_j * momentum * (1 - momentum)^j`` over the steps j = 0, 1, …. The server's
arithmetic makes one factor of it, by which what was there before the round is multiplied: between 0 and 1 where
statistics are averaged; beyond -1 they grow from round to round with changing sign, and variances turn negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ecgr.algorithms import Algorithm, Contribution, Population, Trace


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One client's share of the old statistics that its upload takes away, and what its algorithm needs to know."""

    client: int
    examples: int
    steps: int
    share: float


def statistics_momentum(model: nn.Module) -> float | None:
    """By how much a step moves the running statistics towards the batch's; None where a model has none.

    >>> statistics_momentum(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    0.1
    """
    found = (module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats)
    return next((module.momentum for module in found), None)


def forgotten(coefficients: Tensor, momentum: float) -> float:
    """The share of the old statistics in a combination of steps.

    >>> round(forgotten(torch.ones(3, dtype=torch.float64), momentum=0.1), 3)  # 1 - 0.9^3
    0.271
    """
    steps = torch.arange(len(coefficients), dtype=torch.float64)
    return float(coefficients.double() @ (momentum * (1 - momentum) ** steps))


def averaged_factor(clients: Sequence[Forgetting]) -> float:
    """The factor where statistics are averaged by examples."""
    return 1 - sum(own.examples * own.share for own in clients) / sum(own.examples for own in clients)


def weighted_factor(
    clients: Sequence[Forgetting], algorithm: Algorithm, population: Population, lr: float, momentum: float
) -> float:
    """The factor where statistics pass through the algorithm like weights: its own arithmetic, on one number."""
    old = torch.ones(1, dtype=torch.float64)
    server, state = algorithm.init_server(old), algorithm.init_client(old)

    def upload(own: Forgetting) -> Contribution:
        update = own.share * old
        payload = algorithm.finish(Trace(update, update, own.steps, lr, momentum), server, state)[1]
        return Contribution(own.client, own.examples, payload)

    return float(algorithm.aggregate(old, server, [upload(own) for own in clients], population)[0])


def smallest_variance(state: Mapping[str, Tensor]) -> float | None:
    """The smallest running variance of a model's state; None where it has none."""
    variances = [float(tensor.min()) for name, tensor in state.items() if name.endswith("running_var")]
    return min(variances, default=None)
