"""Local corrections: what a method changes on the clients.

- FedAvg: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)
- FedProx: "Federated Optimization in Heterogeneous Networks" (Li et al., 2020)
- FedNova: "Tackling the Objective Inconsistency Problem in Heterogeneous Federated …" (Wang et al., 2020)
- FedCM: "Federated Learning with Client-level Momentum" (Xu et al., 2021), in the units of a gradient
- FedDyn: "Federated Learning Based on Dynamic Regularization" (Acar et al., 2021), without a dimension
- SCAFFOLD: "Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020), its option II
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from ecgr.algorithms.base import Combined, Defaults, Plan, Population, Trace, Upload, combined, mean_update, scalar
from ecgr.component import Fraction, NonNegative, Positive, PositiveFraction, State, Tensor, component, torch
from ecgr.core.vectors import weighted_mean


@component
class FedAvg(Defaults):
    """No correction: average the clients' updates by their examples.

    ``server_lr`` is the older way to say ``server.lr``.

    >>> FedAvg(server_lr=1.05)
    FedAvg(server_lr=1.05)
    """

    server_lr: Positive = 1.0

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """``server_lr`` times the mean update."""
        return combined(results, self.server_lr), server


@component
class FedProx(Defaults):
    """A pull of strength mu towards the global model in every local gradient; mu 0 is FedAvg.

    >>> FedProx(mu=0.1)
    FedProx(mu=0.1)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"mu": (0.001, 1.0)}
    mu: NonNegative = 0.1

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``mu (w - w_t)``, the gradient of the proximal term."""
        return self.mu * (params - anchor) if self.mu else None


@component
class FedNova(Defaults):
    """Divide each update by its number of steps a_i, average, multiply by the mean a_i.

    ``normalizer = "momentum"`` is FedNova's own norm for momentum SGD, the total weight with which the T gradients
    enter the update; ``"steps"`` counts local steps (a_i = T). With equal a_i this is FedAvg.
    """

    normalizer: Literal["steps", "momentum"] = "momentum"

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the normalised update and a_i."""
        a = float(trace.steps) if self.normalizer == "steps" else trace.effective_steps
        return client, {"update": trace.update / a, "effective_steps": scalar(a)}

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """``(sum p_i a_i) (sum p_i update_i / a_i)``, p_i the shares among those who took part."""
        examples = sum(r.examples for r in results)
        effective = sum(r.examples / examples * float(r.payload["effective_steps"]) for r in results)
        return combined(results, effective), server


@component
class FedCM(Defaults):
    """Every local gradient becomes ``alpha g + (1 - alpha) D``, D the last round's mean gradient; alpha 1 is FedAvg.

    Two repairs of what its paper prints. D is the mean update over lr times the *effective* steps: over lr times the
    steps, local momentum 0.9 would make it up to ten gradients long, and the loop diverges. And the first round, which
    has no D, trains on the whole gradient, not on alpha times it.
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"alpha": (0.05, 1.0)}
    alpha: PositiveFraction = 0.5

    @property
    def in_gradient_units(self) -> bool:
        return True

    def broadcast(self, server: State) -> State:
        """D goes down with the model, once there is one."""
        return server

    def direction(self, gradient: Tensor, server: State, client: State) -> Tensor | None:
        """``alpha g + (1 - alpha) D``."""
        if self.alpha == 1 or "direction" not in server:
            return None
        return self.alpha * gradient + (1 - self.alpha) * server["direction"]

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the update and a_i."""
        return client, {"update": trace.update, "effective_steps": scalar(trace.effective_steps)}

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """The mean update; ``D = mean / (lr sum p_i a_i)``."""
        mean = combined(results)
        effective = sum(p * float(r.payload["effective_steps"]) for p, r in zip(mean.shares, results, strict=True))
        return mean, {"direction": mean.update / (lr * effective)}


@component
class FedDyn(Defaults):
    """Pull every client towards the global model, shifted by all that it was pulled away before; rel 0 is FedAvg.

    The pull is ``rel / (lr a_i)`` with the effective steps a_i, not the constant that its paper prints: under a
    decaying learning rate that turns into momentum near 1. Duals are kept in units of the learning rate, so that they
    follow it. The server takes a step of its own (the mean update and the mean dual) and serves the mean of the
    clients' models, as the official code does; there a client's pull is divided by its share of the examples, here it
    counts with n_i / a_i: both make the fixed point that of the example-weighted objective.
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"rel": (0.05, 2.0)}
    rel: NonNegative = 0.4

    @property
    def in_gradient_units(self) -> bool:
        return self.rel > 0

    def init_server(self, params: Tensor) -> State:
        return {"dual": torch.zeros_like(params), "lr": scalar(0.0)} if self.rel else {}

    def init_client(self, params: Tensor) -> State:
        return {"dual": torch.zeros_like(params)} if self.rel else {}

    def begin(self, plan: Plan, server: State, client: State) -> State:
        """The round's learning rate and pull beside the dual."""
        if not self.rel:
            return client
        pull = self.rel / (plan.lr * plan.effective_steps)
        return {**client, "lr": scalar(plan.lr), "pull": scalar(pull)}

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``pull (w - w_t - lr H_i)``."""
        return client["pull"] * (params - anchor - client["lr"] * client["dual"]) if self.rel else None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """``H_i + update / lr``, from the training that took place; upload the update and a_i."""
        if not self.rel:
            return client, {"update": trace.update}
        payload = {"update": trace.update, "effective_steps": scalar(trace.effective_steps)}
        if trace.regulated:
            payload["plain"] = trace.plain
        return {"dual": client["dual"] + trace.plain / trace.lr}, payload

    def served(self, params: Tensor, server: State) -> Tensor:
        """The mean of the clients' models: the parameters without the dual's part of the step."""
        return params + server["lr"] * server["dual"] if self.rel else params

    def aggregate(
        self, params: Tensor, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Tensor, State]:
        """``H + |S|/N mean / lr``, ``w - mean - lr H'``, means by n_i / a_i."""
        if not self.rel:
            return params - mean_update(results), server
        weights = [r.examples / float(r.payload["effective_steps"]) for r in results]
        mean = weighted_mean([r.payload["update"] for r in results], weights)
        plain = weighted_mean([r.payload.get("plain", r.payload["update"]) for r in results], weights)
        dual = server["dual"] + (len(results) / population.clients / lr) * plain
        return params - mean - lr * dual, {"dual": dual, "lr": scalar(lr)}


@component
class Scaffold(Defaults):
    """Correct every local step by the difference of the server's and the client's control variate.

    ``units`` says what a control variate is, and with it where the correction acts; the two are the same without
    momentum. ``"steps"``: the mean displacement per step over the learning rate, subtracted outside the momentum
    buffer. ``"gradient"``: the mean gradient, the displacement over lr times the *effective* steps, added to the
    gradient. The control is taken from the training that took place, never from a regulated update.

    ``damping`` d corrects by ``d (c - c_i)``: 1 is SCAFFOLD, 0 is FedAvg. ``control_weights``: the server's variate
    moves by the clients' changes, weighted by their ``"examples"`` among the whole population's, or ``"uniform"``ly by
    1/N as in SCAFFOLD's paper. ``control_rate`` moves it by that share of the participants' mean change instead: where
    few take part, a rate above their share keeps it fresher.

    **One vector goes up**, as FedAvg's: the server works out the change of a client's control from the update. (With a
    regulator the update does not tell, and the plain one goes up beside it.) For a damping below 1 that takes the
    client's last control, of which the server keeps a copy; a client that loses its own starts again from zero, and
    the two come together again by the factor ``damping`` a round.
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"damping": (0.2, 1.0)}
    damping: Fraction = 1.0
    units: Literal["steps", "gradient"] = "steps"
    control_rate: PositiveFraction | None = None
    control_weights: Literal["examples", "uniform"] = "examples"

    @property
    def in_gradient_units(self) -> bool:
        return self.units == "gradient"

    def init_server(self, params: Tensor) -> State:
        return {"control": torch.zeros_like(params)}

    def init_client(self, params: Tensor) -> State:
        return {"control": torch.zeros_like(params)}

    def broadcast(self, server: State) -> State:
        """c goes down with the model."""
        return {"control": server["control"]}

    def gradient_term(self, params: Tensor, anchor: Tensor, server: State, client: State) -> Tensor | None:
        """``d (c - c_i)`` in units of the gradient."""
        return self._correction(server, client) if self.units == "gradient" else None

    def step_term(self, server: State, client: State) -> Tensor | None:
        """``d (c - c_i)`` in units of steps."""
        return self._correction(server, client) if self.units == "steps" else None

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """``c_i' = (w_t - w_T) / (a lr) - d (c - c_i)``; upload the update and a, the steps in the units of c."""
        steps = float(trace.steps) if self.units == "steps" else trace.effective_steps
        change = self._change(trace.plain / (steps * trace.lr), server["control"], client["control"])
        payload = {"update": trace.update, "steps": scalar(steps)}
        if trace.regulated:
            payload["plain"] = trace.plain
        return {"control": client["control"] + change}, payload

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """The mean update; ``c + sum p_i (c_i' - c_i)`` with shares of the whole population."""
        total = server["control"].double()
        copies = {}
        for result in results:
            payload, copy = result.payload, f"control of client {result.client}"
            own = server.get(copy, torch.zeros_like(server["control"]))
            displacement = payload.get("plain", payload["update"])
            change = self._change(displacement / (float(payload["steps"]) * lr), server["control"], own)
            total = total + self._share(result, results, population) * change.double()
            if self.damping < 1:
                copies[copy] = own + change
        return combined(results), {**server, **copies, "control": total.to(server["control"].dtype)}

    def _correction(self, server: State, client: State) -> Tensor | None:
        return self.damping * (server["control"] - client["control"]) if self.damping else None

    def _change(self, displacement: Tensor, control: Tensor, own: Tensor) -> Tensor:
        """``c_i' - c_i``; the same arithmetic on both sides, so that the server's copy is the client's to the bit."""
        change = displacement - self.damping * control
        return change if self.damping == 1 else change - (1 - self.damping) * own

    def _share(self, result: Upload, results: Sequence[Upload], population: Population) -> float:
        uniform = self.control_weights == "uniform"
        if self.control_rate is not None:
            everybody = len(results) if uniform else sum(r.examples for r in results)
            return self.control_rate * (1 if uniform else result.examples) / everybody
        return 1 / population.clients if uniform else result.examples / population.examples
