"""torch's SGD without the compiler.

A step of a torch optimiser imports ``torch._dynamo``, and so does making one: a second of processor time in every
process that trains, for a compiler that is not used. Here every method is torch's own, taken from under the decorators
that import the compiler or open a range for the profiler. Where a release of torch has no such function, its SGD is
used as it is.
"""

from collections.abc import Callable

import torch

_DECORATED = ("add_param_group", "state_dict", "load_state_dict", "zero_grad")
_plain_step: Callable[["LeanSGD"], None] | None = getattr(torch.optim.SGD.step, "__wrapped__", None)


class LeanSGD(torch.optim.SGD):
    """`torch.optim.SGD`, to the bit; calls step hooks as that does."""


def _step(self: LeanSGD, closure: None = None) -> None:
    assert _plain_step is not None
    for before in self._optimizer_step_pre_hooks.values():
        before(self, (self,), {})
    with torch.no_grad():
        _plain_step(self)
    for after in self._optimizer_step_post_hooks.values():
        after(self, (self,), {})


if _plain_step is not None:
    _step.hooked = True  # type: ignore[attr-defined]  # the hooks are called here: torch need not wrap it to do so
    LeanSGD.step = _step  # type: ignore[method-assign, assignment]
    for _name in _DECORATED:
        _method = getattr(torch.optim.SGD, _name)
        setattr(LeanSGD, _name, getattr(_method, "__wrapped__", _method))
