"""Real federations on Flower: both apps, the guard in front of aggregation, and what starts them on machines.

`client_app` and `server_app` play the same experiment file as `ecgr run`, through the same training, aggregation and
recording code, so that a federation in which nobody fails gives the same bits. Only this package imports flwr.
"""

from ecgr.errors import EnvironmentFault, missing_extra

__all__ = ["FlowerMissing", "Guard", "Guarded", "MemoryGrid", "client_app", "server_app"]


class FlowerMissing(EnvironmentFault, ImportError):
    """Flower is an extra, and is not installed."""


try:
    from ecgr.flower.guard import Guard
    from ecgr.flower.guarded import Guarded
    from ecgr.flower.memory import MemoryGrid
    from ecgr.flower.server import server_app
    from ecgr.flower.site import client_app
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flwr":
        raise
    raise FlowerMissing(str(missing_extra("a federation", "flower"))) from None
