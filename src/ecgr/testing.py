"""Checks that people run on parts of their own, and that this package runs on its own: does it keep the promises?

::

    from ecgr.testing import check_regulator
    check_regulator(MyRegulator)                # or an object: check_regulator(MyRegulator(share=0.3))

Each raises an ``AssertionError`` with one line that says which promise is broken and on what; nothing is returned.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecgr.algorithms import Algorithm, Plan, Population, Trace, Upload, compose
from ecgr.component import State
from ecgr.config.experiment import load
from ecgr.config.user_code import complete
from ecgr.core.geometry import Geometry, Regulation
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.pickling import pack, unpack
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import Snapshot, play_round, start
from ecgr.tasks.task import Task

__all__ = ["check_algorithm", "check_regulator", "check_store"]

LENGTHS = (1, 2, 3, 8, 30)
"""Numbers of steps that a regulator is tried on."""


def check_regulator(regulator: Any) -> None:
    """A regulator is a pure function of the inner products; its weights are finite, one for each step.

    It must stand every set of steps: a single one, equal ones, ones that cancel, zeros, twelve orders of magnitude.
    Where it says ``restore``, the update has the length of the plain one.
    """
    made = _made(regulator)
    _check_travels(made)
    for what, steps in step_sets():
        gram = steps @ steps.T
        before = gram.clone()
        regulation = made(Geometry(gram))
        kind = type(regulation).__name__
        _promise(isinstance(regulation, Regulation), f"{what}: it gives a {kind}, not a Regulation")
        _promise(torch.equal(gram, before), f"{what}: it changes the inner products that it is given")
        _check_regulation(what, regulation, steps)
        again = unpack(pack(made))(Geometry(gram))
        same = torch.equal(regulation.weights, again.weights) and regulation.kept == again.kept
        _promise(same, f"{what}: it does not give the same weights a second time, or in another process")


def _check_regulation(what: str, regulation: Regulation, steps: Tensor) -> None:
    weights, kept, count = regulation.weights, regulation.kept, len(steps)
    found = f"{tuple(weights.shape)} of {weights.dtype}"
    _promise(weights.shape == (count,), f"{what}: {found} weights for {count} steps; one each")
    _promise(weights.dtype == torch.float64, f"{what}: {found} weights; they are float64")
    _promise(bool(torch.isfinite(weights).all()), f"{what}: a weight is not finite")
    once = len({*kept} & {*range(count)}) == len(kept) and all(isinstance(step, int) for step in kept)
    _promise(once, f"{what}: kept is {kept}; it names steps from 0 to {count - 1} once")
    numbers = all(isinstance(value, float) and np.isfinite(value) for value in regulation.metrics.values())
    _promise(numbers, f"{what}: metrics are finite floats, not {dict(regulation.metrics)}")
    if regulation.restore and "gamma" in regulation.metrics:
        length, plain = (float(vector.norm()) for vector in (regulation.coefficients @ steps, steps.sum(dim=0)))
        near = abs(length - plain) <= 1e-6 * float(steps.norm(dim=1).sum())
        _promise(near, f"{what}: it says that the length is restored, and gives {length:.6g} instead of {plain:.6g}")


def step_sets() -> Iterator[tuple[str, Tensor]]:
    """Sets of local steps of every awkward kind, (T, d), each with a name."""
    rng = np.random.default_rng(0)
    for count in LENGTHS:
        normal = rng.standard_normal((count, 4))
        pairs = rng.integers(-3, 4, size=((count + 1) // 2, 4)).astype(float)
        kinds: Mapping[str, Any] = {
            "random": normal,
            "drifting": normal * 0.5 + rng.standard_normal(4),
            "equal": np.tile(normal[:1], (count, 1)),
            "cancelling": np.concatenate([pairs, -pairs])[:count],
            "zero": np.zeros((count, 4)),
            "very unequal": normal * 10.0 ** rng.uniform(-6, 6, size=(count, 1)),
        }
        for kind, steps in kinds.items():
            yield f"{count} {kind} step{'s' if count > 1 else ''}", torch.from_numpy(np.array(steps))


def check_algorithm(algorithm: Any) -> None:
    """An algorithm changes nothing that it is given, speaks in named tensors, and gives the same round twice.

    It is tried alone, and through the training loop: three rounds of a small task, half of the clients a round, with
    and without a regulator.
    """
    entry = _made(algorithm)
    _check_travels(entry)
    whole = compose(complete(entry))
    _check_states(whole)
    for regulator in ("none", "ecgr"):
        _check_rounds(entry, regulator)


def _check_states(algorithm: Algorithm) -> None:
    params, update = torch.linspace(-1, 1, 5), torch.linspace(0.1, 0.2, 5)
    server, client = algorithm.init_server(params), algorithm.init_client(params)
    _check_named_tensors(init_server=server, init_client=client)
    given = {"params": params, "update": update, **_named("server", server), **_named("client", client)}
    before = {name: tensor.clone() for name, tensor in given.items()}
    broadcast, state, payload = _one_client(algorithm, params, server, client, update)
    _check_named_tensors(payload=payload, broadcast=broadcast, client=state)
    sent = {name: tensor.clone() for name, tensor in payload.items()}
    after, server_after = algorithm.aggregate(params, server, [Upload(0, 5, payload)], Population(1, 5), 0.1)
    _check_named_tensors(server=server_after)
    for name, tensor in given.items():
        _promise(torch.equal(tensor, before[name]), f"it changes {name} in place; make a new tensor")
    for name, tensor in payload.items():
        _promise(torch.equal(tensor, sent[name]), f"aggregate changes a client's {name} in place; make a new tensor")
    _promise(after.shape == params.shape and after.dtype == params.dtype, "aggregate gives parameters of another shape")
    _promise(bool(torch.isfinite(after).all()), "aggregate gives parameters that are not finite")
    payload = _one_client(algorithm, params, server, client, torch.zeros(5))[2]
    after, _ = algorithm.aggregate(params, server, [Upload(0, 5, payload)], Population(1, 5), 0.1)
    _promise(torch.equal(after, params), "clients that did not move at all make the server move")


def _one_client(
    algorithm: Algorithm, params: Tensor, server: State, client: State, update: Tensor
) -> tuple[State, State, State]:
    """What goes down, what a client keeps and what it sends, after three steps that came to ``update``."""
    broadcast = algorithm.broadcast(server)
    begun = algorithm.begin(Plan(3, 0.1, 0.9), broadcast, client)
    algorithm.gradient_term(params + 1, params, broadcast, begun)
    algorithm.step_term(broadcast, begun)
    return broadcast, *algorithm.finish(Trace(update, update, 3, 0.1, 0.9), broadcast, begun)


def _check_named_tensors(**states: Mapping[str, Any]) -> None:
    for where, state in states.items():
        fits = all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items())
        _promise(fits, f"{where} holds something else than tensors by name; it could not be stored or sent")


def _check_rounds(entry: Any, regulator: str) -> None:
    """Three rounds of a small task, each of them twice."""
    changes = {
        "algorithm.name": entry,
        "regulator.name": regulator,
        "federation.rounds": 3,
        "federation.batch_size": 4,
        "federation.participation": 0.5,
        "optimizer.lr": 0.05,
    }
    task = _small_task()
    problem = prepare(load(task, changes), task.load())
    engine, snapshot = SerialEngine(problem), start(problem)
    for _ in range(3):
        outcome, again = play_round(problem, engine, snapshot), play_round(problem, engine, snapshot)
        where = f"round {outcome.snapshot.rounds} with the regulator {regulator}"
        _promise(_finite(outcome.snapshot), f"{where}: a number is not finite")
        same = torch.equal(outcome.snapshot.params, again.snapshot.params)
        _promise(same, f"{where}: the same round from the same state comes out differently")
        snapshot = outcome.snapshot


def _small_task() -> Task:
    """48 samples at four clients of unequal sizes."""
    inputs = np.random.default_rng(0).standard_normal((48, 5))
    samples = (inputs, (inputs[:, 0] > 0).astype(np.int64))
    clients = (np.arange(48) % 4 + np.arange(48) // 36).clip(max=3)
    return Task(lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)), samples, samples, clients=clients)


def check_store(kind: Any, tolerance: float | None = None) -> None:
    """A store answers as dense float64 arithmetic on the displacements that it was given, and keeps its own copies.

    Args:
        kind: an entry of ``STORES``, or a class like one.
        tolerance: how far its answers may be off, relative to the steps' lengths; 1e-6 where it says that it is exact,
            otherwise it must be given.
    """
    if tolerance is None:
        _promise(kind.exact, f"{kind.name}: it says that it is not exact; give the tolerance that it promises")
        tolerance = 1e-6
    for count, size in ((1, 1), (2, 300), (33, 7), (70, 1100)):
        what = f"{count} displacements of {size} numbers"
        rows = torch.from_numpy(np.random.default_rng(0).standard_normal((count, size))).float()
        store = kind(size)
        buffer = torch.empty(size)
        for row in rows:
            store.append(buffer.copy_(row))
        buffer.zero_()
        _promise(len(store) == count, f"{what}: it says that it holds {len(store)}")
        _check_answers(what, store, rows.double(), tolerance)
        _check_refuses(what, store, size)


def _check_answers(what: str, store: Any, rows: Tensor, tolerance: float) -> None:
    count, size = rows.shape
    norms, gram = rows.norm(dim=1), store.gram()
    _promise(gram.shape == (count, count) and gram.dtype == torch.float64, f"{what}: gram is (T, T), float64")
    _promise(torch.equal(gram, gram.T), f"{what}: gram is not symmetric to the bit")
    _promise(torch.equal(gram, store.gram()), f"{what}: asked again, gram has changed")
    near = ((gram - rows @ rows.T).abs() <= tolerance * norms[:, None] * norms[None]).all()
    _promise(bool(near), f"{what}: inner products are off by more than {tolerance:g}")
    coefficients = torch.linspace(-1, 2, count, dtype=torch.float64)
    combined = store.combine(coefficients)
    _promise(combined.shape == (size,), f"{what}: a combination has shape {tuple(combined.shape)}")
    error = float((combined.double() - coefficients @ rows).norm())
    _promise(error <= tolerance * float(coefficients.abs() @ norms), f"{what}: a combination is off by {error:.3g}")


def _check_refuses(what: str, store: Any, size: int) -> None:
    held = len(store)
    _promise(_raises(lambda: store.append(torch.zeros(size + 1))), f"{what}: it takes a displacement of another size")
    _promise(len(store) == held, f"{what}: it has stored something of a displacement that it refused")
    few = torch.ones(held + 1, dtype=torch.float64)
    _promise(_raises(lambda: store.combine(few)), f"{what}: it takes more coefficients than it has displacements")


def _made(part: Any) -> Any:
    return part() if isinstance(part, type) else part


def _check_travels(part: Any) -> None:
    """Frozen, and the same after a way through a pipe: it is its own configuration."""
    copy = unpack(pack(part))
    name = type(part).__name__
    _promise(copy == part, f"{name}: not equal to a copy that went through a pipe; make it a frozen dataclass")
    _promise(not _raises(lambda: hash(part)), f"{name}: cannot be hashed; make it a frozen dataclass")
    for field in getattr(part, "__dataclass_fields__", {}):
        value = getattr(part, field)
        _promise(_raises(partial(setattr, part, field, value)), f"{name}: {field} can be changed; freeze it")


def _named(where: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{where}'s {name}": tensor for name, tensor in state.items()}


def _finite(snapshot: Snapshot) -> bool:
    states = [snapshot.server, *snapshot.clients.values(), {"params": snapshot.params}]
    return all(bool(torch.isfinite(tensor).all()) for state in states for tensor in state.values())


def _raises(action: Callable[[], object]) -> bool:
    try:
        action()
    except Exception:
        return True
    return False


def _promise(kept: bool, line: str) -> None:
    if not kept:
        raise AssertionError(line)
