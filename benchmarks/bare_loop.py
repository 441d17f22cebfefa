"""The bare limit: the same training in two processes, written by hand, with everything preloaded.

No simulator: images are normalised and laid out beforehand, every process knows its clients from the start, and what
goes through a pipe is the model and back. Nothing here is recorded, checked, logged or recoverable.
"""

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch.nn.functional import cross_entropy

from ecgr.simulation.workspace import Problem, Workspace, portable

BATCH_OF_TEST = 1000


def preloaded(images: Any, problem: Problem) -> torch.Tensor:
    images = images.open() if hasattr(images, "open") else images
    mean, std = (torch.tensor(x).view(1, -1, 1, 1) for x in (problem.mean, problem.std))
    return ((images.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def load(vector: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """Copy a flat vector into the parameters, which keep their layout.

    `torch.nn.utils.vector_to_parameters` makes them views of the vector instead, and no longer channels-last.
    """
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.copy_(piece.view(parameter.shape))


def work(pipe: Connection, opened: Callable[[], Workspace], clients: Sequence[int], test: slice) -> None:
    """One process: answer each global model with its clients' weighted sum and its share of the test images."""
    torch.set_num_threads(1)
    problem = opened().problem
    experiment = problem.experiment
    lr, momentum, batch = (
        experiment.optimizer.lr,
        experiment.optimizer.effective_momentum,
        experiment.federation.batch_size,
    )
    images, labels = preloaded(problem.train.inputs, problem), problem.train.targets
    test_images, test_labels = preloaded(problem.test.inputs, problem)[test], problem.test.targets[test]
    model = problem.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(model.parameters())
    rng = np.random.default_rng(0)
    while True:
        task, vector = pipe.recv()
        if task == "train":
            total = torch.zeros_like(vector)
            for client in clients:
                own = problem.partition.clients[client]
                load(vector, parameters)
                model.train()
                optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum, foreach=True)
                for indices in torch.split(torch.from_numpy(rng.permutation(own)), batch):
                    optimizer.zero_grad()
                    cross_entropy(model(images.index_select(0, indices)), labels[indices]).backward()
                    optimizer.step()
                total += len(own) * torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
            pipe.send(total.numpy())
        elif task == "test":
            load(vector, parameters)
            model.eval()
            with torch.no_grad():
                hits = sum(
                    int((model(x).argmax(dim=1) == y).sum())
                    for x, y in zip(
                        torch.split(test_images, BATCH_OF_TEST), torch.split(test_labels, BATCH_OF_TEST), strict=True
                    )
                )
            pipe.send(hits)
        else:
            return


class BareLoop:
    """Two processes and one round at a time."""

    def __init__(self, problem: Problem, processes: int = 2) -> None:
        opened = portable(problem)
        self._samples = sum(problem.partition.sizes())
        self._vector = torch.nn.utils.parameters_to_vector(problem.model.parameters()).detach()
        shares: list[list[int]] = [[] for _ in range(processes)]
        sizes = problem.partition.sizes()
        for client in sorted(range(len(sizes)), key=lambda c: -sizes[c]):  # the longest first, to whoever has least
            min(shares, key=lambda share: sum(sizes[c] for c in share)).append(client)
        tests = np.linspace(0, len(problem.test), processes + 1).astype(int).tolist()
        context = mp.get_context("spawn")
        self._pipes, self._processes = [], []
        for share, start, stop in zip(shares, tests[:-1], tests[1:], strict=True):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, opened, share, slice(start, stop)), daemon=True)
            process.start()
            theirs.close()  # so that the end of the process ends the pipe
            self._pipes.append(ours)
            self._processes.append(process)

    def round(self) -> None:
        """Train everybody, average, evaluate."""
        totals = self._ask("train")
        self._vector = torch.from_numpy(np.sum(totals, axis=0)) / self._samples
        self._ask("test")

    def close(self) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(("end", None))
            process.join()

    def _ask(self, task: str) -> list[Any]:
        for pipe in self._pipes:
            pipe.send((task, self._vector))
        return [pipe.recv() for pipe in self._pipes]
