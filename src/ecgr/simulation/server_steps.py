"""Gradient steps on the server's own labelled samples, from the new global parameters, after every aggregation.

Plain steps down the gradient of the loss that test samples are scored with, in training mode. Buffers stay the clients'
mean. Which samples a step sees depends on seed and round alone.
"""

from copy import deepcopy

import torch
from torch import Tensor

from ecgr.algorithms.parts import ServerSteps
from ecgr.component import State
from ecgr.core.vectors import write_buffers
from ecgr.errors import ConfigError
from ecgr.simulation.workspace import Feed, Problem, seeded, taken
from ecgr.streams import stream, torch_seed
from ecgr.tasks.losses import evaluation_of


def server_steps(problem: Problem, params: Tensor, buffers: State, round_index: int) -> Tensor:
    """The parameters after the server's steps of a round, where the experiment has any."""
    part: ServerSteps | None = problem.experiment.parts.get("server_steps")
    if part is None or not part.steps or problem.server is None:
        return params
    model, samples = deepcopy(problem.model).to(problem.device), problem.server.open()
    problem.set_training(model)
    seed = problem.experiment.run.seed
    problem.spec.write(params, model)
    write_buffers(buffers, model)
    feed, loss = Feed(model, problem.mean, problem.std), evaluation_of(problem.loss)
    tensors = problem.spec.tensors(model)
    batch, rng = min(part.batch or len(samples), len(samples)), stream(seed, "server", round_index)
    with seeded(torch_seed(seed, "server", round_index)):
        for _ in range(part.steps):
            rows = torch.from_numpy(rng.permutation(len(samples))[:batch])
            targets = taken(samples.targets, rows).to(problem.device)
            gradients = torch.autograd.grad(
                loss(feed.outputs(samples.inputs, rows), targets), tensors, allow_unused=True
            )
            with torch.no_grad():
                for tensor, gradient in zip(tensors, gradients, strict=True):
                    if gradient is not None:
                        tensor.sub_(gradient, alpha=part.lr)
    return problem.spec.read(model).cpu()


def check_server_steps(problem: Problem) -> None:
    """Refuse steps on samples that are not there."""
    if "server_steps" in problem.experiment.parts and problem.server is None:
        raise ConfigError(
            "server_steps: the server has no samples; give Task(server=(X, y)), or set data.server_samples to how many"
            " of the training samples it gets"
        )
