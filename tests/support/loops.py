"""Small training loops, and a slow oracle that writes every model down before and after each step."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

import ecgr
from ecgr.core.geometry import Geometry, Regulation

STEPS = 7


def mlp() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def batches(steps: int = STEPS) -> list[tuple[Tensor, Tensor]]:
    rng = np.random.default_rng(5)
    return [
        (torch.from_numpy(rng.standard_normal((8, 4))).float(), torch.from_numpy(rng.integers(0, 2, 8)))
        for _ in range(steps)
    ]


def backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]


def train(model: nn.Module, optimizer: Optimizer, steps: int = STEPS) -> None:
    for x, y in batches(steps):
        optimizer.zero_grad()
        backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()


def displacements(recorder: ecgr.Recorder) -> list[Tensor]:
    """What was recorded, step by step, through the public interface: unit weights."""
    T = recorder.steps

    class Pick:
        def __init__(self, i: int) -> None:
            self.i = i

        def __call__(self, geometry: Geometry) -> Regulation:
            unit = torch.zeros(geometry.steps, dtype=torch.float64)
            unit[self.i] = 1.0
            return Regulation(unit, restore=False, kept=(self.i,))

    if T == 1:
        return [recorder.plain]
    return [recorder.regulated(Pick(i)).flat for i in range(T)]


def hooks(optimizer: Optimizer) -> int:
    return len(optimizer._optimizer_step_post_hooks) + len(optimizer._optimizer_step_pre_hooks)


class Loop:
    """A model, the recorder of its training, and the oracle: the displacement of every step, from the models."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.model = mlp() if model is None else model
        self._watched = [p for p in self.model.parameters() if p.requires_grad]
        self._dtype = torch.float64 if any(p.dtype == torch.float64 for p in self._watched) else torch.float32
        self.start = self.flat()
        self.oracle: list[Tensor] = []
        self.recorder: ecgr.Recorder | None = None
        self.restart()

    def restart(self) -> None:
        """The batches from the first one on."""
        self._batches = iter(batches(50))

    def flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1).to(self._dtype) for p in self._watched])

    def record(self, optimizer: Optimizer | Sequence[Optimizer], **options: object) -> ecgr.Recorder:
        self.recorder = ecgr.Recorder(self.model, optimizer, **options)  # type: ignore[arg-type]
        return self.recorder

    def gradients(self) -> None:
        """Those of the next batch."""
        for p in self.model.parameters():
            p.grad = None
        x, y = next(self._batches)
        dtype = next(self.model.parameters()).dtype
        backward(nn.functional.cross_entropy(self.model(x.to(dtype)).float(), y))

    def step(self, optimizer: Optimizer, times: int = 1) -> None:
        """So many training steps with ``optimizer``, written down."""
        for _ in range(times):
            self.gradients()
            before = self.flat()
            optimizer.step()
            self.oracle.append(before - self.flat())


Run = Callable[[Loop], object]


def sgd(loop: Loop, lr: float = 0.1) -> SGD:
    return SGD(loop.model.parameters(), lr=lr, momentum=0.9)


def halves(loop: Loop) -> tuple[Optimizer, Optimizer]:
    """An optimiser for each layer."""
    return SGD(loop.model[0].parameters(), lr=0.1), Adam(loop.model[2].parameters(), lr=0.01)  # type: ignore[index]


@torch.no_grad()
def clip(model: nn.Module, at: float = 0.2) -> None:
    for p in model.parameters():
        p.clamp_(-at, at)


def clip_data(model: nn.Module, at: float = 0.2) -> None:
    """As in many a WGAN: no version counter knows of it."""
    for p in model.parameters():
        p.data.clamp_(-at, at)


def check_exact(loop: Loop) -> None:
    recorder = loop.recorder
    assert recorder is not None
    assert recorder.steps == len(loop.oracle) > 1
    for recorded, true in zip(displacements(recorder), loop.oracle, strict=True):
        assert recorded.dtype == true.dtype
        assert torch.equal(recorded, true)
    assert torch.equal(recorder.plain, loop.start - loop.flat())
    end = loop.flat()
    recorder.regulated(ecgr.ECGR(beta=1.0)).apply_(loop.model)
    assert torch.allclose(loop.flat(), end, rtol=0, atol=1e-6)
