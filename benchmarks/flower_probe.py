"""Rounds of FedAvg on random images in Flower's Ray simulation and in this one, in turn; seconds per round of each.

A round trains every client for an epoch and evaluates the new model on a fifth as many images as were trained on: here
in the simulator's own evaluation, there on the clients, as Flower does unless told otherwise. Two Flower clients:
``tutorial`` is written as Flower's PyTorch tutorial writes it (partition and DataLoader made in every call) and runs
with the engine's own defaults; ``tuned`` keeps normalised images in the process, indexes them, uses channels-last, and
runs two clients at a time on one thread each. The first round, in which Ray starts its processes, is left out, as is
ours.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_DISABLE_MEMORY_MONITOR", "1")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.problems import problem
from ecgr.engines import open_engine
from ecgr.models import lenet
from ecgr.simulation import play_round, start

BATCH, LR, MOMENTUM = 128, 0.001, 0.9
TEST_SHARE = 5
ROUNDS = 3
_data: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}


def client_data(client: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's images, normalised beforehand and kept in the process: Flower pays nothing for loading."""
    if client not in _data:
        generator = torch.Generator().manual_seed(client)
        images = torch.randn(samples, 1, 28, 28, generator=generator).contiguous(memory_format=torch.channels_last)
        _data[client] = images, torch.randint(0, 10, (samples,), generator=generator)
    return _data[client]


def tuned_batches(client: int, samples: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    images, labels = client_data(client, samples)
    for indices in torch.split(torch.randperm(samples), BATCH):
        yield images[indices], labels[indices]


def tutorial_batches(client: int, samples: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(client)
    images = torch.from_numpy(rng.integers(0, 256, size=(samples, 1, 28, 28), dtype=np.uint8))
    images = (images.float() / 255 - 0.5) / 0.5
    labels = torch.from_numpy(rng.integers(0, 10, size=samples))
    yield from DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)


def client_app(samples: int, tuned: bool) -> ClientApp:
    app = ClientApp()
    batches = tuned_batches if tuned else tutorial_batches

    def received(message: Message) -> Any:
        model: Any = lenet()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if tuned:
            torch.set_num_threads(1)
            model.to(memory_format=torch.channels_last)
        return model

    def reply(message: Message, **content: Any) -> Message:
        return Message(content=RecordDict(content), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = received(message)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        for images, labels in batches(int(context.node_config["partition-id"]), samples):
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": samples, "loss": 0.0})
        return reply(message, arrays=ArrayRecord(model.state_dict()), metrics=metrics)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model = received(message).eval()
        with torch.no_grad():
            held_out = batches(int(context.node_config["partition-id"]), samples // TEST_SHARE)
            hits = sum(int((model(images).argmax(dim=1) == labels).sum()) for images, labels in held_out)
        return reply(message, metrics=MetricRecord({"num-examples": samples // TEST_SHARE, "hits": hits}))

    return app


def flower_seconds(clients: int, samples: int, tuned: bool) -> float:
    moments: list[float] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(min_available_nodes=clients)

        def tick(number: int, arrays: ArrayRecord) -> MetricRecord:
            moments.append(time.perf_counter())
            return MetricRecord({"round": number})

        strategy.start(grid=grid, initial_arrays=ArrayRecord(lenet().state_dict()), num_rounds=ROUNDS, evaluate_fn=tick)

    two_at_a_time = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    app = client_app(samples, tuned)
    run_simulation(server, app, num_supernodes=clients, backend_config=two_at_a_time if tuned else None)
    return statistics.median(np.diff(moments)[1:].tolist())


def our_seconds(clients: int, samples: int) -> float:
    test = clients * samples // TEST_SHARE
    changes = {"regulator__name": "none", "optimizer__lr": LR, "optimizer__momentum": MOMENTUM}
    chosen = problem("lenet", samples=clients * samples, clients=clients, batch_size=BATCH, test=test, **changes)
    seconds = []
    with open_engine(chosen, workers=2) as engine:
        snapshot = start(chosen)
        for _ in range(ROUNDS):
            began = time.perf_counter()
            snapshot = play_round(chosen, engine, snapshot).snapshot
            seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[1:])


if __name__ == "__main__":
    sizes, tuned = (int(sys.argv[1]), int(sys.argv[2])), sys.argv[3] == "tuned"
    ours = [our_seconds(*sizes)]
    flower = flower_seconds(*sizes, tuned=tuned)
    if not tuned:  # that one has a threshold, so ours is measured on both sides of it
        ours.append(our_seconds(*sizes))
    sys.stdout.write("\n" + json.dumps({"flower": flower, "ours": statistics.fmean(ours)}) + "\n")
