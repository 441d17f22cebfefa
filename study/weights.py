"""Is there a better way to weight local steps? Weights chosen by the loss on a few samples that the server holds.

Clients train as in FedAvg, and each local step's displacement is a row of G. Then the server picks weights >= 0, by ten
steps of Adam on their logarithms, such that the model after the round has a small loss on its own labelled samples,
which no client has and which are not test data:

- ``own steps``: one weight a step, each client by itself, its update as long as the plain one;
- ``clients``: one weight a client, the server's step as long as the plain one;
- ``all steps``: one weight a step, chosen jointly, the server's step as long as the plain one;
- ``clients, any length``: one weight a client, and the length is free.

Beside them FedAvg, ECGR, gradient steps on the same samples after each round, and training on these samples alone.
Every method's rate and server step are tuned on seeds and samples that the test does not use; the rate is constant, and
the average of the recent models is scored.

``python -m study weights DIR [PRESET SAMPLES ROUNDS]`` runs what is missing in DIR and writes DIR/weights.json.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from ecgr.analysis.comparison import compare
from ecgr.analysis.summaries import RunSummary
from ecgr.component import State
from ecgr.config.experiment import load
from ecgr.core.geometry import Geometry
from ecgr.core.regulators import ECGR
from ecgr.report.table import to_json
from ecgr.simulation.client import epoch_batches
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import averaged, evaluate, mean_of
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Problem, Workspace
from ecgr.streams import stream
from ecgr.tasks.partition import Partition

SEEDS, TUNING_SEEDS = tuple(range(10)), (100, 101, 102, 103)
WEIGHT_STEPS, WEIGHT_RATE, SERVER_STEPS = 10, 0.2, 5
Loss = Callable[[Tensor], Tensor]
"""The loss on the server's samples, of flat parameters."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is tuned: the clients' rate, and the server's step or, with ``server_rate``, its own rate."""

    lr: float
    server_step: float = 1.0
    server_rate: float = 0.0


def plain(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """FedAvg."""
    return sum((share * own.sum(0) for share, own in zip(shares, steps, strict=True)), torch.zeros_like(start))


def ecgr(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """Each client's steps as ECGR weights them."""
    grams = [own.double() @ own.double().T for own in steps]
    weights = [ECGR(beta=0.2)(Geometry(gram=gram)).coefficients.to(torch.float32) for gram in grams]
    return plain(start, [w[:, None] * own for w, own in zip(weights, steps, strict=True)], shares, loss)


def own_steps(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """One weight a step, each client by itself."""
    best = [_chosen(start, own, loss)[None] for own in steps]
    return plain(start, best, shares, loss)


def clients(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """One weight a client."""
    return _chosen(start, _by_client(steps, shares), loss)


def clients_any_length(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """One weight a client, and the length is free."""
    return _chosen(start, _by_client(steps, shares), loss, keep_length=False)


def all_steps(start: Tensor, steps: Sequence[Tensor], shares: Sequence[float], loss: Loss) -> Tensor:
    """One weight a step, for all clients jointly."""
    return _chosen(start, torch.cat([share * own for share, own in zip(shares, steps, strict=True)]), loss)


def _by_client(steps: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    return torch.stack([share * own.sum(0) for share, own in zip(shares, steps, strict=True)])


def _chosen(start: Tensor, rows: Tensor, loss: Loss, keep_length: bool = True) -> Tensor:
    """The weighted sum of ``rows``, as long as their plain sum, after which the loss is small."""
    logs = torch.zeros(len(rows), requires_grad=True)
    length = rows.sum(0).norm()
    optimizer = torch.optim.Adam([logs], lr=WEIGHT_RATE)

    def update() -> Tensor:
        made = logs.exp() @ rows
        return made * (length / made.norm().clamp_min(1e-12)) if keep_length else made

    for _ in range(WEIGHT_STEPS):
        optimizer.zero_grad()
        loss(start - update()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return update().detach()


RULES = {
    "fedavg": plain,
    "fedavg+ecgr": ecgr,
    "own steps": own_steps,
    "clients": clients,
    "clients, any length": clients_any_length,
    "all steps": all_steps,
    "server steps": plain,
    "samples alone": plain,
}


def trials(method: str, lr: float) -> list[Setting]:
    """Nine settings a method."""
    rates = [lr / 2, lr, 2 * lr]
    if method == "samples alone":
        return [Setting(0.0, 1.0, lr * 3.0**k) for k in range(-6, 3)]
    if method == "server steps":
        return [Setting(rate, 1.0, server) for rate, server in product(rates, (0.03, 0.1, 0.3))]
    return [Setting(rate, step) for rate, step in product(rates, (0.7, 1.0, 1.4))]


def curve(problem: Problem, method: str, setting: Setting, samples: int, rounds: int) -> Iterator[float]:
    """The metric of the served model by round."""
    workspace, spec = Workspace(problem), problem.spec
    server = torch.from_numpy(server_rows(problem, samples))
    left = Partition.of([np.setdiff1d(part, server.numpy()) for part in problem.partition])
    held = replace(problem, partition=left)
    params, engine = spec.read(problem.model), SerialEngine(problem)
    average: State = {}
    inputs, targets = workspace.given(workspace.train, server)

    def loss(flat: Tensor) -> Tensor:
        return cross_entropy(functional_call(workspace.model, spec.named(flat), (inputs,)), targets)

    for index in range(rounds):
        if setting.lr:
            able = [client for client, size in enumerate(held.partition.sizes()) if size]
            sizes = [held.partition.sizes()[client] for client in able]
            steps = [local_steps(held, workspace, client, index, params, setting.lr) for client in able]
            shares = [size / sum(sizes) for size in sizes]
            params = params - setting.server_step * RULES[method](params, steps, shares, loss)
        for _ in range(SERVER_STEPS if setting.server_rate else 0):
            flat = params.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(flat), flat)
            params = params - setting.server_rate * gradient
        average = averaged(average, index + 1, {"params": params})
        yield evaluate(problem, engine, mean_of(average)["params"], {}).metrics[problem.metrics[0].name]


def server_rows(problem: Problem, samples: int) -> Any:
    """Which training samples the server holds."""
    return np.sort(stream(problem.experiment.run.seed, "server").permutation(len(problem.train))[:samples])


def local_steps(problem: Problem, workspace: Workspace, client: int, index: int, params: Tensor, lr: float) -> Tensor:
    """The displacements of a client's local steps, (T, parameters)."""
    workspace.load(params, {})
    workspace.model.train()
    optimizer = problem.experiment.optimizer.build(workspace.model.parameters(), lr=lr)
    before, rows = params, []
    for batch in epoch_batches(problem, client, index):
        outputs, targets = workspace.batch(workspace.train, batch, training=True)
        optimizer.zero_grad()
        cross_entropy(outputs, targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        after = problem.spec.read(workspace.model)
        rows.append(before - after)
        before = after
    return torch.stack(rows)


def measure(place: Path, name: str = "demo", samples: int = 200, rounds: int = 240) -> None:
    """Tune and run every method, keep each run as a line of ``runs.jsonl``, and write ``weights.json``."""
    torch.set_num_threads(1)
    place.mkdir(parents=True, exist_ok=True)
    done = _read(place / "runs.jsonl")
    chosen: dict[str, Setting] = {}
    summaries = []
    base = load(name).replace({"schedule.name": "constant", "regulator.name": "none"})
    dataset = base.source.load()
    for method in RULES:
        scores = {}
        for setting in trials(method, base.optimizer.lr):
            ends = [
                _run(place, done, base, dataset, method, setting, seed, samples, rounds // 2, 0.2)
                for seed in TUNING_SEEDS
            ]
            scores[setting] = fmean(own[-1] if len(own) == rounds // 2 else -math.inf for own in ends)
        chosen[method] = max(scores, key=lambda own: scores[own])
        for seed in SEEDS:
            values = _run(place, done, base, dataset, method, chosen[method], seed, samples, rounds, 0.0)
            summaries.append(RunSummary(method, seed, tuple(values), tuned=True, diverged=len(values) < rounds))
    found = to_json(compare(summaries, "fedavg"))
    found["chosen"] = {
        method: {"lr": own.lr, "server_step": own.server_step, "server_rate": own.server_rate}
        for method, own in chosen.items()
    }
    found |= {"samples": samples, "rounds": rounds, "problem": name}
    found["scores"] = {
        method: [fmean(own.values[at] for own in summaries if own.method == method and not own.failed) for at in marks]  # type: ignore[misc]
        for method in RULES
        if (marks := [rounds // 10 - 1, rounds // 3 - 1, rounds - 1])
    }
    (place / "weights.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _run(
    place: Path,
    done: dict[str, list[float]],
    base: Any,
    dataset: Any,
    method: str,
    setting: Setting,
    seed: int,
    samples: int,
    rounds: int,
    validation: float,
) -> list[float]:
    key = json.dumps([method, setting.lr, setting.server_step, setting.server_rate, seed, samples, rounds, validation])
    if key not in done:
        changes = {"run.seed": seed, "federation.rounds": rounds} | (
            {"data.validation": validation} if validation else {}
        )
        problem = prepare(base.replace(changes), dataset)
        values = []
        for value in curve(problem, method, setting, samples, rounds):
            if not math.isfinite(value):
                break
            values.append(round(float(value), 6))
        done[key] = values
        with (place / "runs.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"run": key, "values": values}) + "\n")
    return done[key]


def _read(path: Path) -> dict[str, list[float]]:
    if not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    rows: list[Mapping[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["run"]: row["values"] for row in rows}
