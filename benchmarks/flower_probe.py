"""Rounds of FedAvg on random images in Flower's Ray simulation, and in this one before and after; seconds per round.

A round trains every client for an epoch and evaluates the new model on a fifth as many images as were trained on: here
in the simulator's own evaluation, there on the clients, as Flower does unless told otherwise. Two Flower clients:
``quickstart`` is that of Flower's PyTorch template, with the engine's own defaults; ``tuned`` is written for speed and
runs two clients at a time on one thread each. Before the first round that counts, two clients have a round of their
own, in which Ray starts its processes; of ours, the first is left out.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_DISABLE_MEMORY_MONITOR", "1")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.problems import problem, rounds_on
from benchmarks.rows import seconds
from ecgr.simulation.engines import open_engine
from ecgr.tasks.models import lenet

SETTINGS = {"batch": 128, "lr": 0.001, "momentum": 0.9}
TEST_SHARE = 5
ROUNDS = 1
"""Of a quarter of a minute and more each with Flower, so that the suite fits its quarter of an hour."""
TWO_AT_A_TIME = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
BACKENDS: dict[str, Any] = {"quickstart": None, "tuned": TWO_AT_A_TIME}


def flower_seconds(clients: int, samples: int, style: str, place: Path) -> tuple[float, float]:
    """Seconds of a round, and those that its clients spent on getting at their images."""
    client = import_module(f"benchmarks.flower_{style}")
    held_out = samples // TEST_SHARE
    settings: dict[str, Any] = {**SETTINGS, "samples": samples, "held-out": held_out}
    if style == "quickstart":
        settings["file"] = client.write_images(place, clients * (samples + held_out))
    config = ConfigRecord(settings)
    moments: list[float] = []
    loading: list[float] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        def tick(number: int, arrays: ArrayRecord) -> MetricRecord:
            moments.append(time.perf_counter())
            return MetricRecord({"round": number})

        def play(strategy: FedAvg, rounds: int) -> Any:
            arrays = ArrayRecord(lenet().state_dict())
            configs = {"train_config": config, "evaluate_config": config}
            return strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds, evaluate_fn=tick, **configs)

        play(FedAvg(fraction_train=2 / clients, fraction_evaluate=2 / clients, min_available_nodes=clients), rounds=1)
        moments.clear()
        result = play(FedAvg(min_available_nodes=clients), ROUNDS)
        both = zip(result.train_metrics_clientapp.values(), result.evaluate_metrics_clientapp.values(), strict=True)
        loading.extend(clients * (trained["loading"] + evaluated["loading"]) for trained, evaluated in both)

    run_simulation(server, client.app, num_supernodes=clients, backend_config=BACKENDS[style])
    return statistics.median(np.diff(moments).tolist()), statistics.median(loading)


def our_seconds(clients: int, samples: int) -> float:
    test = clients * samples // TEST_SHARE
    changes = {"batch_size": SETTINGS["batch"], "regulator__name": "none"}
    changes |= {f"optimizer__{name}": SETTINGS[name] for name in ("lr", "momentum")}
    chosen = problem("lenet", samples=clients * samples, clients=clients, test=test, **changes)
    with open_engine(chosen, workers=2) as engine:
        play = rounds_on(engine, chosen)
        play()
        return seconds(play)


def main(clients: int, samples: int, style: str) -> dict[str, float]:
    ours = [our_seconds(clients, samples)] if style == "quickstart" else []
    with tempfile.TemporaryDirectory() as scratch:
        flower, loading = flower_seconds(clients, samples, style, Path(scratch))
    measured = {"flower": flower, "loading": loading}
    if ours:  # on both sides of Flower's, so that a slow minute of the machine meets both
        measured["ours"] = statistics.fmean([*ours, our_seconds(clients, samples)])
    return measured


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])) + "\n")
