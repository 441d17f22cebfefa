"""The methods for non-IID clients: each with its cost and when it helps, for ``ecgr list methods``.

Costs are not written down: a round of a few numbers is played, and the vectors that cross the wire or stay are counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ecgr.algorithms import Algorithm, Plan, Population, Trace, Upload, compose
from ecgr.component import State, torch
from ecgr.config.methods import Method
from ecgr.core.regulators import Plain

Evidence = Literal["measured", "our screening", "literature"]
"""``measured``: tuned and with seeds, in docs/results/methods.md; ``our screening``: smaller runs, not kept."""
SIZE = 8
"""Numbers in the made-up model: what has as many is a model-sized vector."""

WHEN: Mapping[str, tuple[str, Evidence]] = {
    "fedavg": ("the baseline: tune its learning rate before anything else", "measured"),
    "fedavg/average(lr=1.5)": ("a longer step and nothing else: what every method has to beat", "measured"),
    "fedprox": ("long local training with mild skew; no gain was shown under label skew", "measured"),
    "fednova": ("clients with very different numbers of steps", "literature"),
    "scaffold": ("clients that come back, at a small learning rate; little gain once FedAvg is tuned", "measured"),
    "scaffold(damping=0.5, units=gradient)": ("as scaffold, at FedAvg's own lr", "our screening"),
    "drift_correction": ("label skew, clients that come back; some runs collapsed", "measured"),
    "fedacg": ("label skew, clients without a memory; nothing more is sent; some runs collapsed", "measured"),
    "fedcm": ("strong label skew, all clients in every round; clients without a memory", "measured"),
    "feddyn": ("label skew, also with few clients a round; clients that come back; a run collapsed", "measured"),
    "fedavgm(server_momentum=0.5)": ("label skew where only the server can be changed", "measured"),
    "fedavgm": ("as with 0.5, over many rounds: momentum 0.9 needs a smaller learning rate", "our screening"),
    "fedavg/momentum(normalised=true)": (
        "does momentum do more than lengthen steps? these are not longer",
        "literature",
    ),
    "fedadam": ("gradients of very different sizes, as in text; not strong label skew", "literature"),
    "fedyogi": ("as fedadam, where updates change their size abruptly", "literature"),
    "fedexp": ("a learning rate that was chosen too small; can overshoot a tuned one", "measured"),
    "fedavg/nur": ("steps that shrink because clients disagree: a control for length", "literature"),
    "fedavg[balanced_softmax]": ("classes in other shares; hurts where clients lack whole classes", "measured"),
    "fedavg[fedrs]": ("mild label skew; hurts where clients hold one class", "our screening"),
    "fedavg[fedlc]": ("mild label skew; hurts where clients hold one class", "our screening"),
    "fedavg[fedntd]": ("forgetting between rounds at mild skew; hurts where clients lack whole classes", "measured"),
    "fedavg@lda": ("label skew: where the classifier is worse than its features; once, at the end", "measured"),
    "fedavg@ridge": ("as fedavg@lda", "measured"),
    "head_only@lda": ("a pretrained body, in one round, however heterogeneous the clients are", "our screening"),
    "fedavg+ecgr": ("a schedule that starves training, by the length of the step; rarely a tuned one", "measured"),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What a method takes besides FedAvg's one model down and one update up, in vectors of the model's size.

    Attributes:
        up: vectors that a client uploads.
        up_regulated: the same with a regulator.
        down: vectors that a client gets, the model included.
        client: what a client remembers from round to round.
        server: what the server keeps besides the model.
        server_per_client: what it keeps for every client.
        forward: forward passes a step.
        backward: backward passes a step.
    """

    up: int
    up_regulated: int
    down: int
    client: int
    server: int
    server_per_client: int
    forward: int
    backward: int = 1

    @property
    def stateful(self) -> bool:
        """Whether a client must remember something, and so come back."""
        return self.client > 0


@dataclass(frozen=True, slots=True)
class Described:
    """One line of the catalogue."""

    notation: str
    what: str
    cost: Cost
    helps: str
    evidence: Evidence


def method_catalogue() -> tuple[Described, ...]:
    """The methods by name, each with its cost and when it helps."""
    return tuple(
        Described(notation, _what(method), cost_of(method), *WHEN[notation])
        for notation, method in ((notation, Method.of(notation)) for notation in WHEN)
    )


def cost_of(method: Method) -> Cost:
    """A method's cost, counted in a round of made-up clients.

    >>> cost_of(Method.of("fedavg"))
    Cost(up=1, up_regulated=1, down=1, client=0, server=0, server_per_client=0, forward=1, backward=1)
    """
    algorithm = compose(method.algorithm, method.server)
    up, down, client, server = _play(algorithm, 2, regulated=False)
    per_client = _play(algorithm, 3, regulated=False)[3] - server
    up_regulated = _play(algorithm, 2, regulated=True)[0]
    return Cost(
        up=up if isinstance(method.regulator, Plain) else up_regulated,
        up_regulated=up_regulated,
        down=1 + down,
        client=client,
        server=server - 2 * per_client,
        server_per_client=per_client,
        forward=2 if getattr(method.loss, "needs_teacher", False) else 1,
    )


def _play(algorithm: Algorithm, clients: int, *, regulated: bool) -> tuple[int, ...]:
    """Vectors up, down, at a client and at the server in the second round; in the first some methods send nothing."""
    params, plan = torch.zeros(SIZE), Plan(steps=2, lr=0.1, momentum=0.9)
    server, states = algorithm.init_server(params), [algorithm.init_client(params)] * clients
    for _ in range(2):
        down, results = algorithm.broadcast(server), []
        for client in range(clients):
            own = algorithm.begin(plan, down, states[client])
            update = torch.full((SIZE,), 0.1 * (client + 1))
            trace = Trace(update, update, plan.steps, plan.lr, plan.momentum, regulated)
            states[client], payload = algorithm.finish(trace, down, own)
            results.append(Upload(client, 1, payload))
        params, server = algorithm.aggregate(params, server, results, Population(clients, clients), plan.lr)
    return tuple(_vectors(state) for state in (results[0].payload, down, states[0], server))


def _vectors(state: State) -> int:
    return sum(tensor.numel() == SIZE for tensor in state.values())


def _what(method: Method) -> str:
    """The first line of what makes the method one."""
    parts = [*method.parts.values(), method.loss, method.regulator, method.server, method.algorithm]
    plain = Method()
    other = [part for part in parts if part not in (None, plain.regulator, plain.server)]
    return (type(other[0]).__doc__ or "").splitlines()[0]
