"""What a training starts from besides the parameters, kept so that it can be run once more."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """Buffers, the optimisers' states, torch's generators."""

    buffers: Mapping[str, Tensor]
    optimizers: Sequence[Mapping[str, Any]]
    generator: Tensor
    cuda_generators: Sequence[Tensor]

    @classmethod
    def of(cls, model: nn.Module, optimizers: Sequence[Optimizer]) -> "Beginning":
        """A copy of all of it, as it is now."""
        return cls(
            buffers={name: buffer.detach().clone() for name, buffer in model.named_buffers()},
            optimizers=[deepcopy(optimizer.state_dict()) for optimizer in optimizers],
            generator=torch.get_rng_state(),
            cuda_generators=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else (),
        )

    def restore(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Put all of it back."""
        for name, buffer in model.named_buffers():
            buffer.copy_(self.buffers[name])
        for optimizer, state in zip(optimizers, self.optimizers, strict=True):
            optimizer.load_state_dict(deepcopy(dict(state)))
        torch.set_rng_state(self.generator)
        for index, generator in enumerate(self.cuda_generators):
            torch.cuda.set_rng_state(generator, index)
