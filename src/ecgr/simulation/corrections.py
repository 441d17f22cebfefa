"""An algorithm's hand in a client's steps: on the gradient before the optimiser's step, on the parameters after it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ecgr.algorithms import Algorithm
from ecgr.component import State
from ecgr.core.vectors import ParamSpec


def gradient_correction(
    algorithm: Algorithm, spec: ParamSpec, model: nn.Module, anchor: Tensor, server: State, client: State
) -> Callable[[], None]:
    """What to call between backward and step: turns the gradient, then adds the algorithm's term to it."""
    turns = algorithm.direction(torch.zeros_like(anchor), server, client) is not None
    adds = algorithm.gradient_term(anchor, anchor, server, client) is not None
    tensors = spec.tensors(model) if turns or adds else []

    def correct() -> None:
        if turns:
            gradient = spec.flatten([torch.zeros_like(t) if t.grad is None else t.grad for t in tensors])
            for tensor, piece in _pieces(algorithm.direction(gradient, server, client)):
                tensor.copy_(piece)
        if adds:
            for tensor, piece in _pieces(algorithm.gradient_term(spec.flatten(tensors), anchor, server, client)):
                tensor.add_(piece)

    def _pieces(flat: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        """The gradients that there are, each with its part of a flat vector."""
        assert flat is not None, "an algorithm corrects every step of a round, or none"
        pairs = zip(tensors, spec.views(flat), strict=True)
        return [(tensor.grad, piece) for tensor, piece in pairs if tensor.grad is not None]

    return correct


def hook_step_term(term: Tensor, lr: float, spec: ParamSpec, model: nn.Module, opt: Optimizer) -> None:
    """Subtract the learning rate times ``term`` after each step, before the recorder looks."""
    tensors = spec.tensors(model)
    pieces = list(spec.views((lr * term).to(tensors[0].device)))

    def correct(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.sub_(piece)

    opt.register_step_post_hook(correct)
