"""Stand-ins that behave like optimisers and wrappers of other libraries, as far as a recorder can tell."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def every(k: int) -> Callable[[], bool]:
    """True at every k-th call."""
    calls = iter(range(1, 10**6))
    return lambda: next(calls) % k == 0


class BareLookahead(Optimizer):
    """Lookahead (Zhang et al., 2019) as often published: `Optimizer.__init__` is not called, so hooks do not exist."""

    def __init__(self, optimizer: Optimizer, k: int = 2, alpha: float = 0.5) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self._prepare(k, alpha)

    def _prepare(self, k: int, alpha: float) -> None:
        self._due, self._alpha = every(k), alpha
        self._slow = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}

    def step(self, closure: Any = None) -> Any:
        loss = self.optimizer.step(closure)
        if self._due():
            for fast, slow in self._slow.items():
                slow.add_(fast.detach() - slow, alpha=self._alpha)
                fast.data.copy_(slow)
        return loss


class Lookahead(BareLookahead):
    """The same as a complete torch optimiser."""

    def __init__(self, optimizer: Optimizer, k: int = 2, alpha: float = 0.5) -> None:
        Optimizer.__init__(self, optimizer.param_groups, {})
        self.optimizer = optimizer
        self._prepare(k, alpha)


class ScheduleFreeSGD(Optimizer):
    """Schedule-free SGD (Defazio et al., 2024): gradients at y, `eval` puts the average x in the parameters' place."""

    def __init__(self, params: Iterable[Tensor], lr: float = 0.1, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "train_mode": True, "k": 0})

    @torch.no_grad()
    def _swap(self, train_mode: bool, weight: Callable[[float], float]) -> None:
        for group in self.param_groups:
            if group["train_mode"] != train_mode:
                for p in group["params"]:
                    if "z" in self.state[p]:
                        p.lerp_(end=self.state[p]["z"], weight=weight(group["momentum"]))
                group["train_mode"] = train_mode

    def eval(self) -> None:
        self._swap(False, lambda momentum: 1 - 1 / momentum)

    def train(self) -> None:
        self._swap(True, lambda momentum: 1 - momentum)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            assert group["train_mode"], "step in eval mode"
            group["k"] += 1
            lr, momentum, share = group["lr"], group["momentum"], 1 / group["k"]
            for p in group["params"]:
                if p.grad is not None:
                    z = self.state[p].setdefault("z", p.detach().clone())
                    p.lerp_(end=z, weight=share)
                    p.add_(p.grad, alpha=lr * (momentum * (1 - share) - 1))
                    z.sub_(p.grad, alpha=lr)


class SAM:
    """Sharpness-aware minimisation (Foret et al., 2021) in two calls, as commonly written; its base optimiser steps."""

    def __init__(self, base: Optimizer, rho: float = 0.05) -> None:
        self.optimizer = base
        self._rho = rho
        self._old: dict[Tensor, Tensor] = {}

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def first_step(self) -> None:
        for p in self._parameters():
            assert p.grad is not None
            self._old[p] = p.data.clone()
            p.add_(p.grad, alpha=self._rho)

    @torch.no_grad()
    def second_step(self) -> None:
        for p in self._parameters():
            p.data = self._old[p]
        self.optimizer.step()


class AcceleratedOptimizer(Optimizer):
    """Accelerate's wrapper, which the Trainer uses too: no hooks of its own, and no inner step while accumulating."""

    def __init__(self, optimizer: Optimizer, accumulate: int = 1) -> None:
        self.optimizer = optimizer
        self._sync_gradients = every(accumulate)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    def step(self, closure: Any = None) -> Any:
        if self._sync_gradients():
            self.optimizer.step(closure)
