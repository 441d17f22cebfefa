"""What must hold for recorded steps to be the whole truth, and one line where it does not.

A displacement is taken around a step of a recorded optimiser. So nothing else may move a parameter in between, and the
parameters must be the same objects, and all the trainable ones, from the beginning to the end. This is looked at, not
assumed: what an optimiser owns by identity, whether it moved by value. NaN equals NaN.
"""

import ctypes
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from ecgr.core.vectors import bare_model
from ecgr.errors import RecordingError

AT_ONCE = frozenset({"cpu"})
"""Devices that answer at every step; others would have to be waited for, and answer on leaving the block."""

Checks = Literal["values", "versions"]

CAUSES = (
    "another optimiser or one made anew, a wrapper such as Lookahead, clipping or projecting, load_state_dict, apply_,"
    " another dtype, or schedule-free's eval()"
)
ADVICE = (
    "record every optimiser, `Recorder(model, [first, second])`, and the wrapper instead of what it wraps; clip in a"
    " step post hook registered before the block; load, apply and evaluate outside of it"
)


class Watch:
    """The parameters of a model and what its optimisers own, as recording begins; later compared with what is there.

    Args:
        model: the model being trained.
        optimizers: those whose steps are recorded.
        recorded: the recorded tensors by name, in order; what is no parameter (a buffer) may move at any time.
        wrappers: kinds of optimisers that were seen through to find these.
        checks: what tells that a parameter moved between two steps: its values, or torch's version counters, which
            cost nothing but know nothing of a write through ``.data``. On leaving the block it is always the values.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        recorded: Mapping[str, Tensor],
        *,
        wrappers: Sequence[str] = (),
        checks: Checks = "values",
    ) -> None:
        self._model = bare_model(model)
        self._parameters = dict(self._model.named_parameters())
        self._trainable = frozenset(id(p) for p in self._parameters.values() if p.requires_grad)
        self._recorded = [
            (index, name, tensor)
            for index, (name, tensor) in enumerate(recorded.items())
            if isinstance(tensor, nn.Parameter)
        ]
        self._versions = self._count() if checks == "versions" else None
        self._dtypes = [tensor.dtype for tensor in recorded.values()]
        self._wrappers = tuple(wrappers)
        self._unanswered: list[tuple[str, Tensor]] = []
        for optimizer in optimizers:
            self._check_owner(optimizer)

    def before_step(self, optimizer: Optimizer, last: Sequence[Tensor], steps: int) -> None:
        """Nothing moved since step ``steps`` left ``last``, and ``optimizer`` moves nothing but what is recorded."""
        for p in owned(optimizer):
            if id(p) not in self._trainable and (p.requires_grad or p.grad is not None):
                raise RecordingError(self._stranger(optimizer, p))
        if self._versions is not None and self._versions == self._count():
            return
        when = f"between step {steps} and step {steps + 1}" if steps else "before the first recorded step"
        if last[0].device.type in AT_ONCE:
            self.check_still(last, when)
        elif self._recorded:
            self._unanswered.append((when, self._still(last)))

    def after_step(self) -> None:
        """From here on nothing moves until the next step."""
        if self._versions is not None:
            self._versions = self._count()

    def check_still(self, last: Sequence[Tensor], when: str) -> None:
        """Every recorded parameter has its value in ``last``."""
        for index, name, tensor in self._recorded:
            if tensor.dtype != self._dtypes[index] or not same(last[index], tensor):
                raise RecordingError(self._moved(f"parameter `{name}`", when))

    def at_exit(self, last: Sequence[Tensor], steps: int, *, finished: bool) -> None:
        """Every step was finished; the parameters are those of the beginning, and where the last step left them."""
        if not finished:
            raise RecordingError(
                f"Recorder: the step after step {steps} began and did not finish (it raised an error), so what it and"
                " those after it moved was not recorded; let the error end the block, and begin again from its start"
            )
        for when, still in self._unanswered:
            if not still:
                raise RecordingError(self._moved("a parameter", when))
        self._check_same_objects()
        self.check_still(last, f"after the last recorded step (step {steps})" if steps else "but no step was recorded")

    def _count(self) -> list[int]:
        return [tensor._version for _, _, tensor in self._recorded]

    def _still(self, last: Sequence[Tensor]) -> Tensor:
        """Whether nothing moved, as a tensor that need not be there yet."""
        before = torch.cat([last[index].reshape(-1) for index, _, _ in self._recorded])
        now = torch.cat([tensor.detach().reshape(-1).to(before) for _, _, tensor in self._recorded])
        return _equal(before, now) if before.shape == now.shape else torch.tensor(False)

    def _check_owner(self, optimizer: Optimizer) -> None:
        kind = type(optimizer).__name__
        if not any(id(p) in self._trainable for p in owned(optimizer)):
            raise RecordingError(
                f"Recorder: {kind} owns no trainable parameter of this model (it was made for another one, or before"
                " this model's parameters were replaced); make it from this model's parameters()"
            )
        for p in owned(optimizer):
            if p.requires_grad and id(p) not in self._trainable:
                raise RecordingError(self._stranger(optimizer, p))

    def _check_same_objects(self) -> None:
        now = dict(self._model.named_parameters())
        for name, p in self._parameters.items():
            if id(p) in self._trainable and now.get(name) is not p:
                what = "was replaced by another object" if name in now else "was taken out of the model"
                raise RecordingError(
                    f"Recorder: parameter `{name}` {what} while recording (a new layer, load_state_dict(assign=True), a"
                    " parametrization), so the steps are not this model's; change the model before the block"
                )
        for name, p in now.items():
            if p.requires_grad and id(p) not in self._trainable:
                raise RecordingError(self._late(name))

    def _moved(self, what: str, when: str) -> str:
        line = f"Recorder: {what} was changed {when}, by something that is not recorded ({CAUSES}); {ADVICE}"
        if self._wrappers:
            line += (
                f"; {' and '.join(self._wrappers)} calls no step hooks, so only the optimiser inside is seen: what"
                " moves weights on top of that cannot be recorded"
            )
        return line

    def _stranger(self, optimizer: Optimizer, p: Tensor) -> str:
        """Why ``optimizer`` must not move ``p``."""
        kind = type(optimizer).__name__
        name = next((name for name, own in self._model.named_parameters() if own is p), None)
        if name is None:
            return (
                f"Recorder: {kind} also owns a parameter of shape {tuple(p.shape)} that is not this model's, so its"
                " steps would be recorded in part; record one module that holds all it trains, such as"
                " nn.ModuleList([model, head])"
            )
        if p.requires_grad:
            return self._late(name)
        return (
            f"Recorder: parameter `{name}` is frozen but has a gradient left, which {kind} would still apply; set its"
            " .grad to None before the block"
        )

    def _late(self, name: str) -> str:
        what = "unfrozen" if name in self._parameters else "added to the model"
        return (
            f"Recorder: parameter `{name}` was {what} while recording, so its steps would be missing; do it before the"
            " block, or give each phase of the training a block of its own"
        )


PLAIN = (nn.Parameter, Tensor)
"""Tensors whose numbers lie where their address says."""

_compare_bytes = (ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)).memcmp
_compare_bytes.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def owned(optimizer: Optimizer) -> Iterator[Tensor]:
    """The parameters that ``optimizer`` moves."""
    for group in optimizer.param_groups:
        yield from group["params"]


def check_values(model: nn.Module) -> None:
    """Refuse a model whose parameters have no values to read or to set."""
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise RecordingError(f"parameter `{name}` has no shape yet; run one batch through the model first")
        if p.is_meta:
            raise RecordingError(
                f"parameter `{name}` is on the meta device and has no values; give the model memory first,"
                " model.to_empty(device=...), and load its weights"
            )


def same(before: Tensor, now: Tensor) -> bool:
    """Whether two tensors hold the same numbers, in the precision of the first.

    >>> same(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan], dtype=torch.bfloat16))
    True
    """
    if before.shape != now.shape:
        return False
    plain = type(now) in PLAIN and before.is_cpu and now.is_cpu and before.dtype == now.dtype and now.is_contiguous()
    if plain and not _compare_bytes(before.data_ptr(), now.data_ptr(), before.nbytes):
        return True  # by far the fastest: this is asked of every parameter before every step
    now = now.detach().to(before)
    return torch.equal(before, now) or bool(_equal(before, now))


def _equal(before: Tensor, now: Tensor) -> Tensor:
    return torch.isclose(before, now, rtol=0.0, atol=0.0, equal_nan=True).all()


def bare_optimizers(given: Any) -> tuple[tuple[Optimizer, ...], tuple[str, ...]]:
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


def _bare_optimizer(given: object) -> Optimizer:
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
