"""What the defaults of comparisons cost and gain, measured on small problems.

- ``level``: after how many rounds the rule says that FedAvg on the demo's problem has levelled off;
- ``served``: the average of the recent models against the last one, at a constant rate;
- ``tuning``: what two stages of tuning choose against the best of the same trials, all run to the end on four seeds.

``python -m study.anytime level|served|tuning FILE`` writes what it measured as JSON; each run is kept beside FILE, and
the same command again makes what is missing. The committed files are ``docs/results/data/anytime-*.json``.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import nn

import ecgr
from ecgr.analysis.curves import levelled_off
from ecgr.analysis.tuning import first_trials
from ecgr.compare.plan import FIRST_SEEDS, TUNING_SEEDS, VALIDATION, anytime, split_anew
from ecgr.compare.space import space_of
from ecgr.compare.tune import FINALISTS
from ecgr.config.experiment import Experiment, load, read
from ecgr.config.methods import method_settings
from ecgr.config.registry import override
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import evaluate
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import latest, simulate, start

MARGIN = 0.005
SEEDS = range(2)
LONG = 240
ROUNDS = (12, 24, 40)
METHODS = ("fedavg", "fedavgm(server_momentum=0.5)")


def normalised() -> nn.Module:
    """A small model with BatchNorm's buffers, for the digits."""
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


def pictures(name: str) -> dict[str, Any]:
    """A thirty-second of MNIST or Fashion-MNIST as vectors, for a perceptron; 2,500 test samples."""
    whole = load({"data": {"name": name, "fraction": 1 / 32, "test_fraction": 0.25}, "model": {"name": "lenet"}})
    from ecgr.config.partition import chosen_share

    data = chosen_share(whole, whole.source.load())
    halves = [
        (half.inputs.reshape(len(half), -1) / np.float32(127.5) - 1, half.targets) for half in (data.train, data.test)
    ]
    task = ecgr.Task(
        model="mlp", train=halves[0], test=halves[1], clients=10, partition=ecgr.Dirichlet(alpha=0.01), name=name
    )
    more = {"optimizer.lr": 0.005, "federation.batch_size": 16, "federation.rounds": 60, "partition.min_batches": 2}
    return override(read(task), more)


def digits(**changes: Any) -> dict[str, Any]:
    """The demo's problem."""
    return override(read("demo"), changes)


PROBLEMS: Mapping[str, Any] = {
    "digits, BatchNorm": lambda: digits(**{"model.name": normalised, "federation.last_batch": "merge"}),
    "digits": digits,
    "reduced MNIST": lambda: pictures("mnist"),
    "reduced Fashion-MNIST": lambda: pictures("fashion_mnist"),
    "digits, 3 of 10 take part": lambda: digits(**{"federation.participation": 0.3}),
    "digits, lookahead": lambda: digits(**{"server.name": "lookahead", "server.momentum": 0.5}),
    "heart disease": lambda: split_anew(read("hospitals/heart_disease")),
}


class Curves:
    """Scores by round, kept as lines of a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.exists() else []
        self.known: dict[str, list[float]] = {
            json.dumps(row["run"], sort_keys=True): row["curve"] for row in map(json.loads, lines)
        }

    def __call__(
        self, problem: str, changes: Mapping[str, Any], measure: Callable[[Experiment], Iterable[float]] | None = None
    ) -> list[float]:
        run = {"problem": problem, **changes}
        key = json.dumps(run, sort_keys=True)
        if key not in self.known:
            experiment = Experiment.from_dict(override(anytime(PROBLEMS[problem]()), changes))
            self.known[key] = list((measure or scores)(experiment))
            with self.file.open("a") as file:
                file.write(json.dumps({"run": run, "curve": self.known[key]}) + "\n")
        return self.known[key]


def scores(experiment: Experiment) -> Iterator[float]:
    """The first metric by round."""
    problem = prepare(experiment, experiment.source.load())
    for outcome in simulate(problem, SerialEngine(problem), start(problem)):
        yield outcome.row["metrics"][problem.metrics[0].name]


def level(curves: Curves) -> dict[str, Any]:
    """When FedAvg on digits has levelled off, and what its score is then and later."""
    of = {seed: curves("digits", {"run.seed": seed, "federation.rounds": LONG}) for seed in range(10)}
    first = next((r for r in range(8, LONG + 1) if levelled_off({s: c[:r] for s, c in of.items()}, MARGIN)), None)
    means = {str(r): fmean(curve[r - 1] for curve in of.values()) for r in (12, 36, 60, 120, 180, LONG)}
    return {"levelled_off_after": first, "score_by_round": means}


def served(curves: Curves) -> dict[str, Any]:
    """The score of the average and of the last model of the same training, after some rounds, over seeds."""
    found: dict[str, Any] = {}
    for problem in list(PROBLEMS)[:-1]:
        own = [curves(problem, {"federation.rounds": ROUNDS[-1], "run.seed": seed}, both) for seed in SEEDS]
        means = [round(fmean(values), 4) for values in zip(*own, strict=True)]
        found[problem] = {
            what: {str(r): means[2 * place + offset] for place, r in enumerate(ROUNDS)}
            for offset, what in enumerate(("average", "last"))
        }
    return found


def both(experiment: Experiment) -> Iterator[float]:
    """After each of some rounds the first metric of the average, then of the last model."""
    problem = prepare(experiment, experiment.source.load())
    engine, name = SerialEngine(problem), problem.metrics[0].name
    for outcome in simulate(problem, engine, start(problem)):
        if outcome.snapshot.rounds in ROUNDS:
            yield outcome.row["metrics"][name]
            yield evaluate(problem, engine, latest(problem, outcome.snapshot), outcome.snapshot.buffers).metrics[name]


def tuning(curves: Curves) -> dict[str, Any]:
    """What the pick of two stages loses on test seeds against the best of all trials on all tuning seeds."""
    found: dict[str, Any] = {}
    for problem, method in product(("digits", "reduced MNIST", "heart disease"), METHODS):
        settings = method_settings(method)
        made = Experiment.from_dict(override(PROBLEMS[problem](), settings))
        rounds = made.federation.rounds
        given = {f"algorithm.{key}" for key in ("server_momentum",)}
        space = {key: axis for key, axis in space_of(made).items() if key not in given}
        trials = [
            [
                curves(problem, {**settings, **values, "data.validation": VALIDATION, "run.seed": s})
                for s in TUNING_SEEDS
            ]
            for values in first_trials(space, 12)
        ]
        names = first_trials(space, 12)
        early = max(3, -(-rounds // 2)) - 1
        short = [fmean(curve[early] for curve in own[: len(FIRST_SEEDS)]) for own in trials]
        whole = [fmean(curve[-1] for curve in own) for own in trials]
        finalists = sorted(range(12), key=lambda i: -short[i])[:FINALISTS]
        picks = {"two stages": max(finalists, key=whole.__getitem__), "all to the end": int(np.argmax(whole))}
        ends = {
            name: [curves(problem, {**settings, **names[pick], "run.seed": seed})[-1] for seed in range(10)]
            for name, pick in picks.items()
        }
        cost = fmean(ends["all to the end"]) - fmean(ends["two stages"])
        found[f"{problem}, {method}"] = {
            "same": picks["two stages"] == picks["all to the end"],
            **{name: round(fmean(values), 4) for name, values in ends.items()},
            "cost": round(cost, 4),
        }
    return {"cost": round(fmean(each["cost"] for each in found.values()), 4), "methods": found}


def main(arguments: Sequence[str]) -> None:
    """Measure one of the three and write it."""
    torch.set_num_threads(1)
    what, file = arguments[0], Path(arguments[1])
    measured = {"level": level, "served": served, "tuning": tuning}[what](Curves(file.with_suffix(".curves.jsonl")))
    file.write_text(json.dumps(measured, indent=1) + "\n")
    sys.stdout.write(file.read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
