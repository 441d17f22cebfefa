"""Recording where buffers count as weights (``run.buffers = "as_weights"``).

The parameters' steps alone decide which are kept and by how much the length is restored; the buffers follow with
the same coefficients, as in the published code. So the weights are, to the bit, those of a run that averages its
buffers: whatever goes wrong, goes wrong in the buffers.
"""

from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ecgr.core.geometry import Regulation, Regulator
from ecgr.core.guards import Checks
from ecgr.core.recorder import Recorder, Update
from ecgr.core.vectors import ParamSpec


class FollowedRecorder:
    """A `Recorder` of the parameters, and beside it one of the buffers, which the regulator never sees."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        store: str,
        spec: ParamSpec,
        steps: int,
        start: Tensor,
        checks: Checks = "values",
    ):
        leading = ParamSpec.of(model)
        count, size = len(leading.names), leading.size
        following = ParamSpec(spec.names[count:], spec.shapes[count:])
        self._spec, self._start = spec, start
        self._leader = Recorder(
            model, optimizer, store=store, spec=leading, steps=steps, start=start[:size], checks=checks
        )
        self._follower = Recorder(model, optimizer, spec=following, steps=steps, start=start[size:])

    def __enter__(self) -> "FollowedRecorder":
        self._leader.__enter__()
        self._follower.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.__exit__(kind, error, trace)
        self._leader.__exit__(kind, error, trace)

    @property
    def seconds(self) -> float:
        """What recording has taken so far."""
        return self._leader.seconds + self._follower.seconds

    @property
    def store(self) -> str:
        """Where the parameters' steps are kept."""
        return self._leader.store

    @property
    def plain(self) -> Tensor:
        """The update without regulation."""
        return torch.cat([self._leader.plain, self._follower.plain])

    def regulated(self, regulator: Regulator) -> Update:
        """The regulated parameters, and the buffers combined with the same coefficients."""
        led = self._leader.regulated(regulator)
        factors = led.regulation.coefficients  # the parameters' factor restores the length
        given = Regulation(factors, restore=False, kept=led.regulation.kept)
        followed = self._follower.regulated(lambda geometry: given)
        return Update(torch.cat([led.flat, followed.flat]), self._start, led.regulation, self._spec)

    def sum_of(self, steps: Sequence[int]) -> Tensor:
        """The sum of some recorded displacements."""
        return torch.cat([self._leader.sum_of(steps), self._follower.sum_of(steps)])
