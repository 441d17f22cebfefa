"""Record every optimiser step of a training loop, then ask for the regulated update.

The three-line drop-in::

    with ecgr.Recorder(model, optimizer) as steps:      # any torch optimiser, any model, any device
        ...                                             # the training loop, unchanged
    update = steps.regulated(ecgr.ECGR(beta=0.2))
    update.apply_(model)                                # model = start - update; send it as before

Sign, stated once: a displacement is ``before - after``, an update ``start - end``; the server subtracts.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ecgr.core.geometry import Geometry, Regulation, Regulator, identity, is_finite
from ecgr.core.stores import STORES, GradientSet, SketchGradientSet, Store, pick
from ecgr.core.stores.blocked import norm
from ecgr.core.stores.protocol import Visit
from ecgr.core.vectors import ParamSpec
from ecgr.errors import ConfigError

NOTHING_RECORDED = "no optimiser step was recorded; train inside the `with Recorder(...)` block first"


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a client uploads: ``start - end`` of its round, regulated.

    Attributes:
        flat: the update as one float32 vector.
        start: the parameters at the start of the round, likewise.
        regulation: the weights it was made with, the steps kept, metrics.
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


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """What training starts from besides the parameters: statistics, the optimiser's state, torch's generators."""

    buffers: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    generator: Tensor
    cuda_generators: Sequence[Tensor]

    @classmethod
    def of(cls, model: nn.Module, optimizer: Optimizer) -> "Beginning":
        """A copy of all of it, as it is now."""
        return cls(
            buffers={name: buffer.detach().clone() for name, buffer in model.named_buffers()},
            optimizer=deepcopy(optimizer.state_dict()),
            generator=torch.get_rng_state(),
            cuda_generators=torch.cuda.get_rng_state_all() if torch.cuda.is_available() else (),
        )

    def restore(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Put all of it back."""
        for name, buffer in model.named_buffers():
            buffer.copy_(self.buffers[name])
        optimizer.load_state_dict(deepcopy(dict(self.optimizer)))
        torch.set_rng_state(self.generator)
        for index, state in enumerate(self.cuda_generators):
            torch.cuda.set_rng_state(state, index)


class Recorder:
    """Hooks ``optimizer.step``: one step, one displacement, whatever the optimiser does inside.

    Parameters may be tied, frozen, without gradient, of mixed dtypes and in several groups; a closure (LBFGS) counts
    as the one step it is. Leaving the ``with`` block, also by an exception, removes the hook; the optimiser and the
    model are otherwise never touched.

    Args:
        model: the model being trained; its parameters with ``requires_grad`` are recorded.
        optimizer: the optimiser whose steps count.
        store: where displacements are kept, a name in ``ecgr.core.stores.STORES`` (or an entry like those).
        spec: the layout of the recorded vector, where it is to differ from the model's trainable parameters.
        steps: how many steps will come, where that is known: saves memory, and ``auto`` picks by it.
        start: the parameters at the start as a flat vector, where it is at hand; saves the copy.
        replay: runs the same training once more: what the store ``replay`` needs. The recorder puts parameters,
            buffers, optimiser and torch's generators back to the start before it calls this; the batches must come in
            the same order, which a shuffling ``DataLoader`` does by itself.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        store: str | Store = "dense",
        spec: ParamSpec | None = None,
        steps: int | None = None,
        start: Tensor | None = None,
        replay: Callable[[], object] | None = None,
    ):
        if isinstance(store, str) and store not in STORES:
            raise ValueError(f"unknown store {store!r}; there are: {', '.join(STORES)}")
        if store == "replay" and replay is None:
            raise ConfigError("store 'replay' runs the training twice; give replay=, a function that runs it again")
        self._model = model
        self._optimizer = optimizer
        self._chosen = store
        self._given_spec = spec
        self._given_start = start
        self._expected = steps
        self._run_again = replay
        self._handle: RemovableHandle | None = None
        self._recorded = False

    def __enter__(self) -> "Recorder":
        if self._handle is not None:
            raise RuntimeError("this Recorder is already recording")
        self.spec = self._given_spec or ParamSpec.of(self._model)
        self._tensors = self.spec.tensors(self._model)
        self._start = self.spec.flatten(self._tensors) if self._given_start is None else self._given_start
        self._last = self._start.clone()
        self._pieces = list(self.spec.views(self._last))
        self._spare: Tensor | None = None
        self._store = self._new_store()
        replays = isinstance(self._store, SketchGradientSet) and self._run_again is not None
        self._beginning = Beginning.of(self._model, self._optimizer) if replays else None
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

    def regulated(self, regulator: Regulator) -> Update:
        """The update of the recorded steps under ``regulator``.

        Where regulation changes nothing (``beta = 1``, one step) the update is ``start - end`` to the bit. The same
        holds, with the metric ``unregulated = 1``, for steps that hold NaN or infinities: there is nothing to weigh.
        """
        if not self.steps:
            raise RuntimeError(NOTHING_RECORDED)
        gram = self._store.gram()
        regulation = regulator(Geometry(gram)) if is_finite(gram) else identity(self.steps, unregulated=1.0)
        if regulation.changes_nothing:
            return Update(self.plain, self._start, regulation, self.spec)
        flat = self._store.combine(regulation.weights)
        if regulation.restore:  # from the vectors themselves, exactly, whatever the store
            length = norm(flat)
            gamma = norm(self.plain) / length if length > 0 else 1.0
            flat.mul_(gamma)
            regulation = regulation.with_metrics(**{"gamma": gamma, **regulation.metrics})
        return Update(flat, self._start, regulation, self.spec)

    def sum_of(self, steps: Sequence[int]) -> Tensor:
        """The sum of some recorded displacements, for diagnostics."""
        chosen = torch.zeros(self.steps, dtype=torch.float64)
        chosen[list(steps)] = 1.0
        return self._store.combine(chosen)

    @property
    def plain(self) -> Tensor:
        """The update without regulation, ``start - end``."""
        if not self._recorded:
            raise RuntimeError(NOTHING_RECORDED)
        return self._start - self._last

    def _new_store(self) -> GradientSet:
        """An empty set; `store` then says by name which one, also where ``auto`` was asked for."""
        chosen, size = self._chosen, self.spec.size
        if chosen == "auto":
            replayable = self._run_again is not None
            chosen = pick(size, self._expected, device=self._start.device, replayable=replayable)
        self.store = chosen if isinstance(chosen, str) else getattr(chosen, "__name__", "own")
        make = STORES[chosen] if isinstance(chosen, str) else chosen
        return make(size, steps=self._expected, replay=self._replay)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Give the store ``last - now``: written straight into its next row, or handed over where it is encoded."""
        with torch.no_grad():
            row = self._store.new_row(self._last.device)
            if row is None:
                self._store.append(self._displacement())
                torch._foreach_copy_(self._pieces, self._tensors)
                return
            if self._spare is None:
                self._spare = torch.empty_like(self._last)
                self._spare_pieces = list(self.spec.views(self._spare))
            torch._foreach_copy_(self._spare_pieces, self._tensors)
            torch.sub(self._last, self._spare, out=row)
            self._last, self._spare = self._spare, self._last
            self._pieces, self._spare_pieces = self._spare_pieces, self._pieces

    def _displacement(self) -> Tensor:
        """``last - now``, in the place of ``last``: no second vector of this size is needed."""
        for last, tensor in zip(self._pieces, self._tensors, strict=True):
            last.sub_(tensor.detach().to(last.device, torch.float32))
        return self._last

    def _replay(self, visit: Visit) -> None:
        """Train once more from the start, show every displacement to ``visit``, and end where training ended."""
        if self._run_again is None or self._beginning is None:
            raise RuntimeError("there is no function to run the training again with")

        def after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            with torch.no_grad():
                visit(self._displacement())
                torch._foreach_copy_(self._pieces, self._tensors)

        with torch.random.fork_rng(devices=range(len(self._beginning.cuda_generators))):
            with torch.no_grad():
                self.spec.write(self._start, self._model)
                self._last.copy_(self._start)
                self._beginning.restore(self._model, self._optimizer)
            handle = self._optimizer.register_step_post_hook(after_step)
            try:
                self._run_again()
            finally:
                handle.remove()
