"""Rounds of FedAvg on a small model in fedjax and here, in turn, in one process; processor seconds of each.

Both train every client for an epoch with momentum and score the new model on the test samples after every round, on the
same samples and partition, on one thread. There it is fedjax's own `federated_averaging` with its default, compiled
backend and its evaluation; its first rounds, which compile, count apart. Ours is the simulator as it is, whose row of
the record has each client's numbers, too.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import fedjax
import haiku as hk
import jax
import numpy as np
import torch

from benchmarks.problems import rounds_on, small_problem
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.workspace import Problem

TEST_BATCH = 1000
if not hasattr(jax, "tree_map"):
    jax.tree_map = jax.tree.map  # as fedjax calls it


def our_rounds(chosen: Problem) -> Callable[[], float]:
    """A function that plays one round after the other, and gives the loss on the test samples."""
    play = rounds_on(SerialEngine(chosen), chosen)
    return lambda: float(play()["loss"])


def their_model(chosen: Problem) -> Any:
    """The same layers in haiku, with the same loss, as a model of fedjax."""
    sizes = [layer.out_features for layer in chosen.model.modules() if isinstance(layer, torch.nn.Linear)]
    classes = chosen.classes if sizes[-1] > 1 else None

    def forward(batch: Any) -> Any:
        hidden = batch["x"]
        for size in sizes[:-1]:
            hidden = jax.nn.relu(hk.Linear(size)(hidden))
        return hk.Linear(sizes[-1])(hidden)

    def loss(batch: Any, outputs: Any) -> Any:
        if classes:
            return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], outputs)
        logits, y = outputs[:, 0], batch["y"].astype(outputs.dtype)
        return jax.numpy.logaddexp(0.0, logits) - y * logits

    def both(outputs: Any) -> Any:
        return outputs if classes else jax.numpy.concatenate([jax.numpy.zeros_like(outputs), outputs], axis=1)

    class Accuracy(fedjax.metrics.Accuracy):  # type: ignore[misc]
        def evaluate_example(self, example: Any, prediction: Any) -> Any:
            return super().evaluate_example(example, both(prediction[None])[0])

    class Loss(fedjax.metrics.Metric):  # type: ignore[misc]
        def zero(self) -> Any:
            return fedjax.metrics.MeanStat.new(0.0, 0.0)

        def evaluate_example(self, example: Any, prediction: Any) -> Any:
            one = {name: value[None] for name, value in example.items()}
            return fedjax.metrics.MeanStat.new(loss(one, prediction[None])[0], 1.0)

    sample = {"x": np.zeros((1, chosen.train.inputs.shape[1]), np.float32), "y": np.zeros(1, np.int32)}
    transformed = hk.transform(forward)
    return fedjax.create_model_from_haiku(transformed, sample, loss, {"accuracy": Accuracy(), "loss": Loss()})


def their_rounds(chosen: Problem) -> Callable[[], float]:
    model, experiment = their_model(chosen), chosen.experiment
    optimizer, batch = experiment.optimizer, experiment.federation.batch_size

    def samples(held: Any, rows: Any) -> Any:
        inputs, targets = held.inputs[rows].numpy(), held.targets[rows].numpy().astype(np.int32)
        return fedjax.ClientDataset({"x": inputs, "y": targets})

    clients = [samples(chosen.train, torch.from_numpy(own)) for own in chosen.partition.clients]
    test = samples(chosen.test, slice(None))
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(optimizer.lr, momentum=optimizer.effective_momentum),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=batch),
    )
    state, keys = [algorithm.init(model.init(jax.random.PRNGKey(0)))], jax.random.split(jax.random.PRNGKey(1), 99)
    state.append(0)

    def play() -> float:
        own = keys[state[1] % len(keys)]
        cohort = [(str(i).encode(), data, own) for i, data in enumerate(clients)]
        state[0], _ = algorithm.apply(state[0], cohort)
        state[1] += 1
        found = fedjax.evaluate_model(model, state[0].params, test.padded_batch(batch_size=TEST_BATCH))
        return float({name: float(value) for name, value in found.items()}["loss"])

    return play


def main(name: str, rounds: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    works = {"ours": our_rounds(small_problem(name)), "fedjax": their_rounds(small_problem(name))}
    first, seconds, losses = {}, {who: [] for who in works}, {}  # type: ignore[var-annotated]
    for number in range(rounds + 2):
        for who, play in works.items():
            began = time.process_time()
            losses[who] = play()
            taken = time.process_time() - began
            if number < 2:
                first[who] = first.get(who, 0.0) + taken
            else:
                seconds[who].append(taken)
    return {**seconds, "first": first, "loss": losses}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(sys.argv[1], int(sys.argv[2]))) + "\n")
