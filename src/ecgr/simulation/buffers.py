"""What becomes of BatchNorm's buffers (``run.buffers``): averaged beside the weights, or treated as weights.

A step moves them by ``momentum * (old - batch)``, so what a client uploads takes a share of the old value away; with
coefficients c_j that share is the sum of ``c_j * momentum * (1 - momentum)^j`` over the steps j = 0, 1, …. The server's
arithmetic makes one factor of it, by which what was there before the round is multiplied: between 0 and 1 where
buffers are averaged; beyond -1 they grow from round to round with changing sign, and variances turn negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from ecgr.algorithms import Algorithm, Contribution, Population, Trace
from ecgr.core.geometry import Regulation
from ecgr.core.recorder import Recorder
from ecgr.core.vectors import ParamSpec
from ecgr.simulation.followers import FollowedRecorder


@dataclass(frozen=True, slots=True)
class Forgetting:
    """One client's share of the old buffers that its upload takes away, and what its algorithm needs to know."""

    client: int
    examples: int
    steps: int
    share: float


@dataclass(frozen=True, slots=True)
class Server:
    """What a round's aggregation depends on besides the uploads."""

    algorithm: Algorithm
    population: Population
    lr: float
    momentum: float


class BufferRule(Protocol):
    """An entry of ``BUFFERS``."""

    def spec(self, model: nn.Module) -> ParamSpec:
        """Which tensors go through the algorithm as weights; the other buffers are averaged."""
        ...

    def recorder(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> Recorder | FollowedRecorder:
        """What records a client's steps."""
        ...

    def coefficients(self, regulation: Regulation | None, steps: int) -> Tensor:
        """By what each step's movement of the buffers is multiplied in a client's upload."""
        ...

    def factor(self, clients: Sequence[Forgetting], server: Server) -> float:
        """What a round multiplies the old buffers by."""
        ...


@dataclass(frozen=True, slots=True)
class Average:
    """Buffers are averaged by examples and never regulated."""

    def spec(self, model: nn.Module) -> ParamSpec:
        """The parameters alone."""
        return ParamSpec.of(model)

    def recorder(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> Recorder:
        """A plain recorder."""
        return Recorder(model, optimizer, **options)

    def coefficients(self, regulation: Regulation | None, steps: int) -> Tensor:
        """Every step counts once."""
        return torch.ones(steps)

    def factor(self, clients: Sequence[Forgetting], server: Server) -> float:
        """The mean of what the clients leave, by examples."""
        return averaged_factor(clients)


@dataclass(frozen=True, slots=True)
class AsWeights:
    """Buffers go through regulator and algorithm like weights, as in the published code."""

    def spec(self, model: nn.Module) -> ParamSpec:
        """The parameters, then the floating-point buffers."""
        return ParamSpec.of(model, buffers_as_weights=True)

    def recorder(self, model: nn.Module, optimizer: Optimizer, **options: Any) -> Recorder | FollowedRecorder:
        """A recorder whose buffers follow the parameters; a plain one where a model has none."""
        follows = options["spec"] != ParamSpec.of(model)
        return (FollowedRecorder if follows else Recorder)(model, optimizer, **options)

    def coefficients(self, regulation: Regulation | None, steps: int) -> Tensor:
        """The regulator's."""
        return torch.ones(steps) if regulation is None else regulation.coefficients

    def factor(self, clients: Sequence[Forgetting], server: Server) -> float:
        """The algorithm's own arithmetic."""
        return weighted_factor(clients, server)


BUFFERS: Mapping[str, BufferRule] = {"average": Average(), "as_weights": AsWeights()}


def buffers_momentum(model: nn.Module) -> float | None:
    """By how much a step moves the buffers towards the batch's statistics; None where a model has none.

    >>> buffers_momentum(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    0.1
    """
    found = (module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats)
    return next((module.momentum for module in found), None)


def forgotten(coefficients: Tensor, momentum: float) -> float:
    """The share of the old buffers in a combination of steps.

    >>> round(forgotten(torch.ones(3, dtype=torch.float64), momentum=0.1), 3)  # 1 - 0.9^3
    0.271
    """
    steps = torch.arange(len(coefficients), dtype=torch.float64)
    return float(coefficients.double() @ (momentum * (1 - momentum) ** steps))


def averaged_factor(clients: Sequence[Forgetting]) -> float:
    """The factor where buffers are averaged by examples."""
    return 1 - sum(own.examples * own.share for own in clients) / sum(own.examples for own in clients)


def weighted_factor(clients: Sequence[Forgetting], server: Server) -> float:
    """The factor where buffers pass through the algorithm like weights: its own arithmetic, on one number."""
    old, algorithm = torch.ones(1, dtype=torch.float64), server.algorithm
    state, own_state = algorithm.init_server(old), algorithm.init_client(old)

    def upload(own: Forgetting) -> Contribution:
        update = own.share * old
        trace = Trace(update, update, own.steps, server.lr, server.momentum)
        return Contribution(own.client, own.examples, algorithm.finish(trace, state, own_state)[1])

    uploads = [upload(own) for own in clients]
    return float(algorithm.aggregate(old, state, uploads, server.population, server.lr)[0])


def smallest_variance(state: Mapping[str, Tensor]) -> float | None:
    """The smallest running variance of a model's state; None where it has none."""
    variances = [float(tensor.min()) for name, tensor in state.items() if name.endswith("running_var")]
    return min(variances, default=None)
