"""What other libraries wrap around a model, its parameters' names and its optimiser, taken off again.

DistributedDataParallel and DataParallel hold the model as ``module``, ``torch.compile`` as ``_orig_mod``; Accelerate
and the Trainer on top of it hold the optimiser as ``optimizer``. They are known by what they have, so that none is a
dependency.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ecgr.component import Module, torch
from ecgr.errors import RecordingError

if TYPE_CHECKING:
    from torch.optim import Optimizer

COMPILED, PARALLEL = "_orig_mod", "module"


def bare_model(model: Module) -> Module:
    """The model itself, below ``torch.compile`` and data parallelism.

    >>> inner = torch.nn.Linear(2, 1)
    >>> bare_model(torch.nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if COMPILED in model._modules:
            model = model.get_submodule(COMPILED)
        elif isinstance(model, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def bare_name(name: str) -> str:
    """A parameter's name without what wrappers put into it.

    >>> bare_name("module._orig_mod.head._orig_mod.weight")
    'head.weight'
    """
    name = name.replace(f"{COMPILED}.", "")
    while name.startswith(f"{PARALLEL}."):
        name = name.removeprefix(f"{PARALLEL}.")
    return name


def bare_optimizers(given: Any) -> "tuple[tuple[Optimizer, ...], tuple[str, ...]]":
    """The torch optimisers whose ``step`` calls hooks: one, or one for each entry of a list, each once.

    Returns:
        The optimisers, and the kinds of wrappers that were seen through to find them.
    """
    several = list(given) if isinstance(given, Iterable) else [given]
    found = [_bare_optimizer(entry) for entry in several]
    if not found:
        raise RecordingError("Recorder: the list of optimisers is empty; give those that train the model")
    wrappers = tuple(type(a).__name__ for a, b in zip(several, found, strict=True) if a is not b)
    return tuple({id(optimizer): optimizer for optimizer in found}.values()), wrappers


def _bare_optimizer(given: object) -> "Optimizer":
    """``given``, or what it holds as ``optimizer``: a wrapper that is no complete torch optimiser calls no hooks."""
    inner = given
    while not (isinstance(inner, torch.optim.Optimizer) and hasattr(inner, "_optimizer_step_post_hooks")):
        inner = getattr(inner, "optimizer", None)
        if inner is None:
            raise RecordingError(
                f"Recorder: {type(given).__name__} is no torch.optim.Optimizer, nor a wrapper with one as `.optimizer`,"
                " so its steps cannot be seen; give the torch optimiser, or a list of them"
            )
    return inner
