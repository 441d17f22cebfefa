"""Federated algorithms as their papers print them: explicit loops over clients and steps, in float64.

For `scaffold` the problem is the two-parameter model: scores (w0 x, w1 x) of a number x, cross-entropy, full-batch
steps without momentum. Its gradient for one sample is (softmax - one-hot) x. `play` runs any algorithm on clients whose
gradient is a line in w, where fixed points have closed forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecgr.algorithms import Algorithm, Defaults, Plan, Population, Trace, Upload
from ecgr.algorithms.base import Combined, combined
from ecgr.component import State

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Client:
    """A client's samples: numbers and labels."""

    x: Vector
    y: NDArray[np.int64]

    def gradient(self, w: Vector) -> Vector:
        """The mean gradient over all samples."""
        scores = np.outer(self.x, w)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        p = odds / odds.sum(axis=1, keepdims=True)
        p[np.arange(len(self.y)), self.y] -= 1.0
        mean: Vector = (p * self.x[:, None]).mean(axis=0)
        return mean


def scaffold(
    clients: Sequence[Client], rounds: int, steps: int, lr: float, *, uniform: bool
) -> tuple[list[Vector], Vector, list[Vector]]:
    """SCAFFOLD, algorithm 1, option II, full participation, global step 1.

    The model is averaged by examples, as this package does everywhere; the server's variate moves by shares of the
    examples, or by 1/N as printed (``uniform``).

    Returns:
        The global models after each round, c, and every c_i.
    """
    w, c = np.zeros(2), np.zeros(2)
    own = [np.zeros(2) for _ in clients]
    sizes = np.array([len(client.y) for client in clients], dtype=np.float64)
    models = []
    for _ in range(rounds):
        ends, changes = [], []
        for i, client in enumerate(clients):
            y = w.copy()
            for _ in range(steps):
                y = y - lr * (client.gradient(y) - own[i] + c)
            new = own[i] - c + (w - y) / (steps * lr)
            ends.append(y)
            changes.append(new - own[i])
            own[i] = new
        shares = sizes / sizes.sum()
        w = w + sum((p * (end - w) for p, end in zip(shares, ends, strict=True)), np.zeros(2))
        weights = np.full(len(clients), 1 / len(clients)) if uniform else shares
        c = c + sum((p * change for p, change in zip(weights, changes, strict=True)), np.zeros(2))
        models.append(w)
    return models, c, own


def momentum_weights(steps: int, momentum: float) -> Vector:
    """How often each of T gradients enters the update of heavy-ball SGD: run it on unit gradients and count."""
    counts = np.zeros(steps)
    for j in range(steps):
        velocity = 0.0
        for t in range(steps):
            velocity = momentum * velocity + (1.0 if t == j else 0.0)
            counts[j] += velocity
    return counts


@dataclass(frozen=True)
class TwoVectorScaffold(Defaults):
    """SCAFFOLD as printed: a client uploads the change of its control variate beside its update.

    In units of steps and undamped: what `ecgr.algorithms.Scaffold` does with one vector.
    """

    uniform: bool = False

    def init_server(self, params: Tensor) -> State:
        return {"control": torch.zeros_like(params)}

    def init_client(self, params: Tensor) -> State:
        return {"control": torch.zeros_like(params)}

    def broadcast(self, server: State) -> State:
        return server

    def step_term(self, server: State, client: State) -> Tensor | None:
        return server["control"] - client["control"]

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        change = trace.plain / (trace.steps * trace.lr) - server["control"]
        return {"control": client["control"] + change}, {"update": trace.update, "control_change": change}

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        control = server["control"].double()
        for r in results:
            share = 1 / population.clients if self.uniform else r.examples / population.examples
            control = control + share * r.payload["control_change"].double()
        return combined(results), {"control": control.to(server["control"].dtype)}


@dataclass(frozen=True)
class Line:
    """A client whose gradient is ``curvature * (w - centre)``, the same in every one of its steps."""

    examples: int
    steps: int
    curvature: float
    centre: float

    def gradient(self, w: Tensor) -> Tensor:
        """At w."""
        return self.curvature * (w - self.centre)


@dataclass(frozen=True)
class Played:
    """Where a run of `play` ended."""

    params: Tensor
    served: Tensor
    server: State
    clients: Sequence[State]


def play(
    algorithm: Algorithm,
    clients: Sequence[Line],
    rounds: Sequence[float],
    *,
    momentum: float = 0.0,
    absent: Sequence[Sequence[int]] = (),
) -> Played:
    """Rounds with the given learning rates, in float64, from w = 0; ``absent`` says who is missing in which round."""
    params = torch.zeros(1, dtype=torch.float64)
    server = algorithm.init_server(params)
    states = [algorithm.init_client(params) for _ in clients]
    population = Population(len(clients), sum(client.examples for client in clients))
    for index, lr in enumerate(rounds):
        down, results = algorithm.broadcast(server), []
        for i, client in enumerate(clients):
            if index < len(absent) and i in absent[index]:
                continue
            own = algorithm.begin(Plan(client.steps, lr, momentum), down, states[i])
            w, velocity = params.clone(), torch.zeros_like(params)
            for _ in range(client.steps):
                gradient = client.gradient(w)
                turned = algorithm.direction(gradient, down, own)
                gradient = gradient if turned is None else turned
                term = algorithm.gradient_term(w, params, down, own)
                velocity = momentum * velocity + (gradient if term is None else gradient + term)
                w = w - lr * velocity
                after = algorithm.step_term(down, own)
                w = w if after is None else w - lr * after
            trace = Trace(params - w, params - w, client.steps, lr, momentum)
            states[i], payload = algorithm.finish(trace, down, own)
            results.append(Upload(i, client.examples, payload))
        params, server = algorithm.aggregate(params, server, results, population, lr)
    return Played(params, algorithm.served(params, server), server, states)
