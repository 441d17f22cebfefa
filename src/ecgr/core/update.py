"""The regulated update of a round: what a client uploads, and how a model takes it.

Sign, stated once: an update is ``start - end``; the server subtracts it.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from ecgr.core.geometry import Regulation
from ecgr.core.stores.blocked import norm
from ecgr.core.vectors import ParamSpec
from ecgr.core.watch import check_values


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
