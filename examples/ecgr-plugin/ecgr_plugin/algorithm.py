"""An algorithm: what clients upload, what they correct, what the server makes of it."""

from dataclasses import dataclass

import torch

from ecgr.algorithms.base import Defaults, Trace
from ecgr.component import State


@dataclass(frozen=True)
class Clipped(Defaults):
    """FedAvg of updates no longer than a norm."""

    norm: float = 1.0

    def finish(self, trace: Trace, server: State, client: State) -> tuple[State, State]:
        """Upload the update, shortened where it is too long."""
        length = torch.linalg.vector_norm(trace.update, dtype=torch.float64)
        return client, {"update": trace.update * min(1.0, self.norm / max(float(length), 1e-12))}
