"""SCAFFOLD: "Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020), its option II."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from ecgr.algorithms.base import Combined, Defaults, Population, Trace, Upload, combined
from ecgr.component import Fraction, PositiveFraction, State, Tensor, component, torch


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
        payload = {"update": trace.update, "steps": torch.tensor(steps, dtype=torch.float64)}
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
