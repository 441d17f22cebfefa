"""No regulation: the baseline. The training loop does not even record steps for it."""

from ecgr.component import component
from ecgr.core.geometry import Geometry, Regulation, identity


@component
class Plain:
    """Upload the plain update: no regulation, nothing recorded."""

    def __call__(self, geometry: Geometry) -> Regulation:
        """All weights are one."""
        return identity(geometry.steps)
