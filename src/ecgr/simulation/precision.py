"""How precisely the passes of a client's steps are computed (``run.precision``).

What is kept is float32 whatever it says: parameters, optimiser, displacements, their inner products, the aggregate. So
are the loss, which is made of outputs brought back to float32, and every score of the global model.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[..., Any]


def in_bf16(model: nn.Module) -> Forward:
    """The model's forward pass with products in bfloat16; its backward pass follows."""
    device = next(model.parameters()).device.type

    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            outputs = model(*args, **kwargs)
        return outputs.float() if isinstance(outputs, Tensor) and outputs.dtype == torch.bfloat16 else outputs

    return forward


PRECISIONS: Mapping[str, Callable[[nn.Module], Forward]] = {"float32": lambda model: model, "bf16": in_bf16}
"""By name: what makes a model's forward pass of a model."""
