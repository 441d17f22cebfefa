"""torch's SGD without the compiler that it imports.

A step of a torch optimiser imports ``torch._dynamo``, and so does making one: a second of processor time in every
process that trains, for a compiler that is not used. The functions are torch's own, taken from under the decorators
that import it; where a release of torch has none, its SGD is used as it is.
"""

import torch

_DECORATED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
_plain_step = getattr(torch.optim.SGD.step, "__wrapped__", None)


class LeanSGD(torch.optim.SGD):
    """`torch.optim.SGD`, to the bit."""


if _plain_step is not None:
    LeanSGD.step = torch.no_grad()(_plain_step)  # type: ignore[method-assign]
    for _name in _DECORATED:
        _method = getattr(torch.optim.SGD, _name)
        setattr(LeanSGD, _name, getattr(_method, "__wrapped__", _method))
