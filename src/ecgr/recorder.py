"""Record every optimiser step of a training loop, then ask for the regulated update.

The three-line drop-in::

    with ecgr.Recorder(model, optimizer) as steps:      # any torch optimiser, any model, any device
        ...                                             # the training loop, unchanged
    update = steps.regulated(ecgr.ECGR(beta=0.2))
    update.apply_(model)                                # model = start - update; send it as before

Sign, stated once: a displacement is ``before - after``, an update ``start - end``; the server subtracts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ecgr.geometry import Geometry, Regulation, Regulator, identity
from ecgr.gradients import STORES, GradientSet
from ecgr.vectors import ParamSpec


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a client uploads: ``start - end`` of its round, regulated.

    Attributes:
        flat: the update as one float32 vector.
        start: the parameters at the start of the round, likewise.
        regulation: the coefficients it was made with, the steps kept, metrics.
    """

    flat: Tensor
    start: Tensor
    regulation: Regulation
    spec: ParamSpec

    def as_state_dict(self) -> dict[str, Tensor]:
        """The update by parameter name, in the parameters' shapes (float32)."""
        return self.spec.named(self.flat)

    def apply_(self, model: nn.Module) -> None:
        """Set ``model``'s parameters to ``start - update``; its buffers stay untouched."""
        self.spec.write(self.start - self.flat, model)


class Recorder:
    """Hooks ``optimizer.step``: one step, one displacement, whatever the optimiser does inside.

    Parameters may be tied, frozen, without gradient, of mixed dtypes and in several groups; a closure (LBFGS) counts
    as the one step it is. Leaving the ``with`` block, also by an exception, removes the hook; the optimiser and the
    model are otherwise never touched.

    Args:
        model: the model being trained; its parameters with ``requires_grad`` are recorded.
        optimizer: the optimiser whose steps count.
        store: where displacements are kept, a name in ``ecgr.gradients.STORES``.
        spec: the layout of the recorded vector, where it is to differ from the model's trainable parameters.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, *, store: str = "dense", spec: ParamSpec | None = None):
        if store not in STORES:
            raise ValueError(f"unknown store {store!r}; there are: {', '.join(STORES)}")
        self._model = model
        self._optimizer = optimizer
        self._store_name = store
        self._given_spec = spec
        self._handle: RemovableHandle | None = None
        self._recorded = False

    def __enter__(self) -> "Recorder":
        if self._handle is not None:
            raise RuntimeError("this Recorder is already recording")
        self.spec = self._given_spec or ParamSpec.of(self._model)
        self._tensors = self.spec.tensors(self._model)
        self._start = self.spec.flatten(self._tensors)
        self._last = self._start.clone()
        self._now = torch.empty_like(self._start)
        self._store: GradientSet = STORES[self._store_name](self.spec.size)
        self._handle = self._optimizer.register_step_post_hook(self._after_step)
        self._recorded = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    @property
    def steps(self) -> int:
        """T, the number of steps recorded."""
        return len(self._store) if self._recorded else 0

    def regulated(self, regulator: Regulator, *, previous: Tensor | None = None) -> Update:
        """The update of the recorded steps under ``regulator``.

        Args:
            regulator: how to weigh the steps.
            previous: the last global step as a flat vector, where the client knows it.

        Where regulation changes nothing (``beta = 1``, one step) the update is ``start - end`` to the bit. The same
        holds, with the metric ``unregulated = 1``, for steps that hold NaN or infinities: there is nothing to weigh.
        """
        if not self.steps:
            raise RuntimeError("no optimiser step was recorded; train inside the `with Recorder(...)` block first")
        gram = self._store.gram()
        if torch.isfinite(gram).all():
            direction = None if previous is None else self._store.project(previous)
            regulation = regulator(Geometry(gram=gram, previous=direction))
        else:
            regulation = identity(self.steps, unregulated=1.0)
        flat = self.plain if regulation.changes_nothing else self._store.combine(regulation.coefficients)
        return Update(flat, self._start, regulation, self.spec)

    def sum_of(self, steps: Sequence[int]) -> Tensor:
        """The sum of some recorded displacements, for diagnostics."""
        chosen = torch.zeros(self.steps, dtype=torch.float64)
        chosen[list(steps)] = 1.0
        return self._store.combine(chosen)

    @property
    def plain(self) -> Tensor:
        """The update without regulation, ``start - end``."""
        return self._start - self._last

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with torch.no_grad():
            self.spec.flatten(self._tensors, out=self._now)
            # `_last` becomes the displacement and is copied into the store; then the two buffers change roles.
            self._store.append(self._last.sub_(self._now))
            self._last, self._now = self._now, self._last
