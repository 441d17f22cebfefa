"""What of a model is trained, and what stays as it is.

A module without a trainable parameter is frozen: it is in eval mode while the others train, so its BatchNorm keeps its
statistics and its dropout is off, and its buffers are never sent. One that has buffers and no parameters is frozen
where it comes before everything that is trained. Parameters that a user froze otherwise change no module's mode.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from textwrap import shorten
from typing import Any

import torch
from torch import Tensor, nn

from ecgr.core.vectors import ParamSpec, write_buffers
from ecgr.errors import ConfigError, refused

HEAD = "head"


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """The frozen part of a model.

    Attributes:
        modules: the names of the outermost frozen modules.
        whole: the model with all its parts; a worker has none.
    """

    modules: tuple[str, ...]
    whole: nn.Module | None = None

    @classmethod
    def of(cls, model: nn.Module) -> "Frozen":
        """As the parameters' ``requires_grad`` says."""
        names = [name for name, module in model.named_modules() if name and _is_frozen(model, name, module)]
        return cls(tuple(name for name in names if not _within(name.rpartition(".")[0], names)), model)

    def train(self, model: nn.Module) -> None:
        """Training mode for all that is not frozen; ``model`` is the whole or its head."""
        model.train()
        for name, module in model.named_modules():
            if name in self.modules:
                module.eval()

    def moving(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The buffers that training may change."""
        return {name: buffer for name, buffer in buffers.items() if not _within(name, self.modules)}

    def state(self, spec: ParamSpec, params: Tensor, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of the whole model."""
        whole = deepcopy(self.whole)
        assert whole is not None, "a worker has no whole model"
        spec.write(params, whole)
        write_buffers(buffers, whole)
        held = ((name, value) for name, value in whole.state_dict().items() if isinstance(value, Tensor))
        return {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in held}


def freeze(model: nn.Module, trainable: Any) -> None:
    """Have some parameters trained: ``"head"``, those that match a pattern, or that a function (name, parameter) picks.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> freeze(model, "head")
    >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    ['2.weight', '2.bias']
    """
    pattern = f"{head_of(model)}*" if trainable == HEAD else trainable
    pick = trainable if callable(trainable) else lambda name, _: fnmatchcase(name, pattern)
    for name, parameter in model.named_parameters():
        with refused(f"model.trainable: failed at {name}"):
            parameter.requires_grad_(bool(pick(name, parameter)))
    if not trains(model):
        there = shorten(", ".join(name for name, _ in model.named_parameters()), 300, placeholder=" …")
        given = getattr(trainable, "__name__", trainable)
        raise ConfigError(f"model.trainable: {given!r} picks no parameter, so nothing is trained; there are {there}")


def head_of(model: nn.Module) -> str:
    """The prefix of the last part's parameters: of the last child that has any, below modules that only hold one."""
    prefix = ""
    while held := [(name, child) for name, child in model.named_children() if any(True for _ in child.parameters())]:
        prefix, model = f"{prefix}{held[-1][0]}.", held[-1][1]
        if len(held) > 1:
            break
    return prefix


def _is_frozen(model: nn.Module, name: str, module: nn.Module) -> bool:
    own = list(module.parameters())
    if own or not list(module.buffers()):
        return bool(own) and not trains(module)
    here = (each for each, other in model.named_modules() if each == name or trains(other, inside=False))
    return bool(next(here) == name)


def trains(module: nn.Module, *, inside: bool = True) -> bool:
    """Whether one of its parameters is trained; of its very own ones, if not ``inside``."""
    return any(parameter.requires_grad for parameter in module.parameters(recurse=inside))


def _within(name: str, modules: Sequence[str]) -> bool:
    """Whether a name is one of ``modules`` or lies within one."""
    return any(name == each or name.startswith(f"{each}.") for each in modules)
