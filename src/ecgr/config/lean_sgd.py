"""torch's SGD without what a step of a small model does not need.

A step of a torch optimiser imports ``torch._dynamo``, and so does making one: a second of processor time in every
process that trains, for a compiler that is not used. It also opens a range for the profiler, groups its tensors by
device and dtype, and asks for options that nobody set: more time than the arithmetic of a small model takes. Here the
first step is torch's own function, taken from under the decorators that import the compiler, and makes the momentum;
the steps after it do the same arithmetic on the same lists. Where a release of torch has no such function, its SGD is
used as it is.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_DECORATED = ("add_param_group", "state_dict", "load_state_dict")
_plain_step = getattr(torch.optim.SGD.step, "__wrapped__", None)


class LeanSGD(torch.optim.SGD):
    """`torch.optim.SGD` with one group of parameters on one device, to the bit; calls step hooks as that does."""


def _step(self: LeanSGD, closure: None = None) -> None:
    for before in self._optimizer_step_pre_hooks.values():
        before(self, (self,), {})
    with torch.no_grad():
        if not _move(self):
            _plain(self)
    for after in self._optimizer_step_post_hooks.values():
        after(self, (self,), {})


def _move(self: LeanSGD) -> bool:
    """Take a step, or nothing where a momentum is still to be made or a gradient is not an ordinary one."""
    (group,) = self.param_groups
    momentum, decay = group["momentum"], group["weight_decay"]
    moved: list[Tensor] = [p for p in group["params"] if p.grad is not None]
    steps: Any = [p.grad for p in moved]
    if not moved or any(step.layout is not torch.strided for step in steps):
        return False
    buffers: list[Any] = [self.state[p].get("momentum_buffer") for p in moved] if momentum else []
    if any(buffer is None for buffer in buffers):
        return False
    if decay:
        steps = torch._foreach_add(steps, moved, alpha=decay)
    if momentum:
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, steps, alpha=1)
        steps = buffers
    torch._foreach_add_(moved, steps, alpha=-group["lr"])
    return True


def _zero_grad(self: LeanSGD, set_to_none: bool = True) -> None:
    for parameter in self.param_groups[0]["params"]:
        parameter.grad = None


if _plain_step is not None:
    _plain: Callable[[LeanSGD], None] = _plain_step
    _step.hooked = True  # type: ignore[attr-defined]  # the hooks are called here: torch need not wrap it to do so
    LeanSGD.step = _step  # type: ignore[method-assign, assignment]
    LeanSGD.zero_grad = _zero_grad  # type: ignore[method-assign, assignment]
    for _name in _DECORATED:
        _method = getattr(torch.optim.SGD, _name)
        setattr(LeanSGD, _name, getattr(_method, "__wrapped__", _method))
