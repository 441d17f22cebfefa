"""Record every optimiser step of a training loop, then ask for the regulated update.

The three-line drop-in::

    with ecgr.Recorder(model, optimizer) as steps:      # or a list of optimisers; any model, any device
        ...                                             # the training loop, unchanged
    update = steps.regulated(ecgr.ECGR(beta=0.2))
    update.apply_(model)                                # model = start - update; send it as before

Sign, stated once: a displacement is ``before - after``, an update ``start - end``; the server subtracts.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ecgr.core.geometry import Geometry, Regulation, Regulator, identity, is_finite, weigh
from ecgr.core.guards import Checks, Watch, bare_optimizers, check_values
from ecgr.core.stores import STORES, DenseStore, Kind, norm
from ecgr.core.vectors import ParamSpec, widest
from ecgr.errors import NotFiniteWarning, RecordingError

NOTHING_RECORDED = "no optimiser step was recorded; train inside the `with Recorder(...)` block first"
NOT_FINITE = (
    "the recorded steps hold NaN or infinite values: training diverged, and the update is the plain one, unregulated;"
    " lower the learning rate, and do not send this update"
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Update:
    """What a client uploads: ``start - end`` of its round, regulated.

    Attributes:
        flat: the update as one vector: float32, or float64 where the model has float64 parameters.
        start: the parameters at the start of the round, likewise.
        regulation: the weights it was made with, the steps kept, metrics.
        spec: where each parameter lies in the vectors.
    """

    flat: Tensor
    start: Tensor
    regulation: Regulation
    spec: ParamSpec

    def __repr__(self) -> str:
        dtype = str(self.flat.dtype).removeprefix("torch.")
        steps = f"{len(self.regulation.kept)} of {len(self.regulation.weights)} steps kept"
        return f"Update({len(self.flat):,} numbers in {dtype}, {steps}, norm {norm(self.flat):.4g})"

    def as_state_dict(self) -> dict[str, Tensor]:
        """The update by parameter name, in the parameters' shapes; the names are those of the unwrapped model."""
        return self.spec.named(self.flat)

    def apply_(self, model: nn.Module) -> None:
        """Set ``model``'s parameters to ``start - update``; its buffers stay untouched.

        The model may be wrapped (DistributedDataParallel, ``torch.compile``) or not, whatever was recorded.
        """
        check_values(model)
        self.spec.write(self.start - self.flat, model)


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Recorded steps and where they led from ``start`` to ``end``; recording them took ``seconds``."""

    rows: DenseStore
    start: Tensor
    end: Tensor
    spec: ParamSpec
    seconds: float = 0.0

    @property
    def plain(self) -> Tensor:
        """The update without regulation, ``start - end``."""
        return self.start - self.end

    def regulated(self, regulator: Regulator, *, stacklevel: int = 2) -> Update:
        """As `Recorder.regulated`."""
        gram = self.rows.gram()
        finite = is_finite(gram)
        if not finite:
            warnings.warn(NOT_FINITE, NotFiniteWarning, stacklevel=stacklevel)
        regulation = weigh(regulator, Geometry(gram)) if finite else identity(len(self.rows), unregulated=1.0)
        if regulation.changes_nothing:
            return Update(self.plain, self.start, regulation, self.spec)
        flat = self.rows.combine(regulation.weights)
        if regulation.restore:  # from the vectors themselves, exactly, whatever the store
            length = norm(flat)
            gamma = norm(self.plain) / length if length > 0 else 1.0
            flat.mul_(gamma)
            regulation = regulation.with_metrics(gamma=gamma)
        return Update(flat, self.start, regulation, self.spec)


class Recorder:
    """Hooks ``optimizer.step``: one step, one displacement, whatever the optimiser does inside.

    Parameters may be tied, frozen, without gradient, of mixed dtypes (recorded in the widest) and in several groups; a
    closure (LBFGS) counts as the one step it is. Leaving the ``with`` block, also by an exception, removes the hooks;
    the optimiser and the model are otherwise never touched.

    A loop that moves parameters outside of the recorded steps, or changes which there are, is refused: a
    `RecordingError` at the next step or on leaving the block, and again from `regulated`.

    Args:
        model: the model being trained; its parameters with ``requires_grad`` are recorded.
        optimizer: the optimiser whose steps count, or several: then a step is one call of any of them. Wrappers that
            hold one as ``.optimizer`` (Accelerate's, the Trainer's) are seen through.
        store: where displacements are kept, a name in ``ecgr.core.stores.STORES`` (or an entry like those).
        spec: the layout of the recorded vector, where it is to differ from the model's trainable parameters.
        steps: how many steps will come, where that is known: saves memory, and ``auto`` picks by it.
        start: the parameters at the start as a flat vector, where it is at hand; saves the copy.
        checks: how to tell that parameters moved between two steps: by their values, or, for a loop that is known, by
            torch's version counters, which cost nothing but do not know of writes through ``.data``.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Sequence[Optimizer],
        *,
        store: str | Kind = "dense",
        spec: ParamSpec | None = None,
        steps: int | None = None,
        start: Tensor | None = None,
        checks: Checks = "values",
    ):
        if isinstance(store, str) and store not in STORES:
            raise ValueError(f"unknown store {store!r}; there are: {', '.join(STORES)}")
        self._kind = STORES[store] if isinstance(store, str) else store
        self._model = model
        self._optimizers, self._wrappers = bare_optimizers(optimizer)
        self._given_spec = spec
        self._given_start = start
        self._expected = steps
        self._checks: Checks = checks
        self._handles: list[RemovableHandle] = []
        self._recorded = False
        self.seconds = 0.0
        """What recording has taken so far, inside the steps."""
        self._refusal: str | None = None

    def __enter__(self) -> "Recorder":
        if self._handles:
            raise RecordingError("this Recorder is already recording; make a second one for another block")
        self._recorded = False
        check_values(self._model)
        given = self._given_start
        self.spec = self._given_spec or ParamSpec.of(self._model)
        self._tensors = self.spec.tensors(self._model)
        self._start = self.spec.flatten(self._tensors) if given is None else given.to(widest(self._tensors))
        self._last = self._start.clone()
        self._pieces = list(self.spec.views(self._last))
        self._spare: Tensor | None = None
        recorded = dict(zip(self.spec.names, self._tensors, strict=True))
        self._watch = Watch(self._model, self._optimizers, recorded, wrappers=self._wrappers, checks=self._checks)
        self._refusal = None
        self._store = self._kind(self.spec.size, steps=self._expected, like=self._start)
        self._handles = self._hook()
        self._recorded = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        try:
            self._refuse_unless(lambda: self._watch.at_exit(self._pieces, self.steps, finished=not self._depth))
        except RecordingError:
            if error is None:  # what already went wrong goes first; `regulated` will say this line
                raise

    @property
    def steps(self) -> int:
        """T, the number of steps recorded."""
        return len(self._store) if self._recorded else 0

    @property
    def store(self) -> str:
        """Where the steps are kept; what ``auto`` picked."""
        return self._store.name

    def regulated(self, regulator: Regulator) -> Update:
        """The update of the recorded steps under ``regulator``.

        Where regulation changes nothing (``beta = 1``, one step) the update is ``start - end`` to the bit. The same
        holds, with the metric ``unregulated = 1`` and a warning, for steps that hold NaN or infinities: there is
        nothing to weigh.
        """
        return self.recorded().regulated(regulator, stacklevel=3)

    def recorded(self) -> Steps:
        """The steps so far; refused where there are none, or where they are not all that moved the model."""
        if not self.steps:
            raise RecordingError(self._refusal or NOTHING_RECORDED)
        self._refuse_unless(self._check_now)
        return Steps(self._store, self._start, self._last, self.spec, self.seconds)

    @property
    def plain(self) -> Tensor:
        """The update without regulation, ``start - end``."""
        if not self._recorded:
            raise RecordingError(NOTHING_RECORDED)
        self._refuse_unless(self._check_now)
        return self._start - self._last

    def _refuse_unless(self, check: Callable[[], None]) -> None:
        """Run ``check``; what it refuses is refused from then on, in the same words."""
        if self._refusal is None:
            try:
                check()
            except RecordingError as error:
                self._refusal = str(error)
        if self._refusal is not None:
            raise RecordingError(self._refusal)

    def _check_now(self) -> None:
        """While recording, the steps so far are all that moved the model; after the block that is known."""
        if self._handles:
            self._watch.check_still(self._pieces, f"after step {self.steps}")

    def _hook(self) -> list[RemovableHandle]:
        """Hooks on all optimisers, for the outermost call: a step may call its base class's, or another optimiser's.

        ``torch.compile`` leaves them out of its graphs, where it is loaded at all.
        """
        self._depth = 0

        def enter(optimizer: Optimizer, *_: Any) -> None:
            if not self._depth:
                self._before_step(optimizer)
            self._depth += 1

        def leave(*_: Any) -> None:
            self._depth -= 1
            if not self._depth:
                self._after_step()

        if "torch._dynamo" in sys.modules:
            enter, leave = torch.compiler.disable(enter), torch.compiler.disable(leave)  # type: ignore[no-untyped-call]
        entered = [optimizer.register_step_pre_hook(enter) for optimizer in self._optimizers]
        return entered + [optimizer.register_step_post_hook(leave) for optimizer in self._optimizers]

    def _before_step(self, optimizer: Optimizer) -> None:
        """Make sure that what the step will be recorded from is where the last one ended."""
        began = perf_counter()
        self._refuse_unless(lambda: self._watch.before_step(optimizer, self._pieces, self.steps))
        self.seconds += perf_counter() - began

    def _after_step(self) -> None:
        """Give the store ``last - now``: written straight into its next row, or handed over where it is encoded."""
        began = perf_counter()
        self._watch.after_step()
        row = self._store.new_row(self._last.device) if self._last.dtype == torch.float32 else None
        with torch.no_grad():
            if row is None:  # in the place of ``last``: no second vector of this size is needed
                for last, tensor in zip(self._pieces, self._tensors, strict=True):
                    last.sub_(tensor.to(last))
                self._store.append(self._last)
                torch._foreach_copy_(self._pieces, self._tensors)
            else:
                if self._spare is None:
                    self._spare = torch.empty_like(self._last)
                    self._spare_pieces = list(self.spec.views(self._spare))
                torch._foreach_copy_(self._spare_pieces, self._tensors)
                torch.sub(self._last, self._spare, out=row)
                self._last, self._spare = self._spare, self._last
                self._pieces, self._spare_pieces = self._spare_pieces, self._pieces
        self.seconds += perf_counter() - began
