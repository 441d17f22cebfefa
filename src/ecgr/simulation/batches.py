"""Which samples each local step sees."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ecgr.simulation.workspace import Problem
from ecgr.streams import stream


def epoch_batches(problem: Problem, client: int, round_index: int) -> Iterator[Tensor]:
    """The sample indices of every local step; the stream depends on seed, round and client alone."""
    federation = problem.experiment.federation
    own = problem.partition.clients[client]
    rng = stream(problem.experiment.run.seed, "batches", round_index, client)
    sizes = batch_sizes(len(own), federation.batch_size, federation.last_batch)
    for _ in range(federation.local_epochs):
        order = torch.from_numpy(rng.permutation(own))
        yield from torch.split(order[: sum(sizes)], sizes)


def local_steps(problem: Problem, client: int) -> int:
    """T, the number of steps that a client takes in a round."""
    federation = problem.experiment.federation
    samples = len(problem.partition.clients[client])
    return federation.local_epochs * len(batch_sizes(samples, federation.batch_size, federation.last_batch))


def batch_sizes(samples: int, batch_size: int, last_batch: str) -> list[int]:
    """The sizes of an epoch's batches.

    A last batch of a single sample is a step like any other ("keep"), joins the batch before it ("merge") or is left
    out ("drop"); longer ones are always steps, and so is the only batch of a client.

    >>> [batch_sizes(9, 4, rule) for rule in ("keep", "merge", "drop")]
    [[4, 4, 1], [4, 5], [4, 4]]
    >>> batch_sizes(6, 4, "merge")
    [4, 2]
    """
    whole, rest = divmod(samples, batch_size)
    sizes = [batch_size] * whole + ([rest] if rest else [])
    if len(sizes) > 1 and sizes[-1] == 1 and last_batch != "keep":
        sizes.pop()
        if last_batch == "merge":
            sizes[-1] += 1
    return sizes
