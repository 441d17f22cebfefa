"""Real federations on Flower: both apps, the guard in front of aggregation, and what starts them on machines.

`client_app` and `server_app` play the same experiment file as `ecgr run`, through the same training, aggregation and
recording code, so that a federation in which nobody fails gives the same bits. Only this package imports flwr.

::

    site.py, server.py         the two apps            wire.py      what passes between them
    fleet.py                   who takes part          guard.py     which replies count; guarded.py: for Flower's rules
    bundles.py, keys.py        whose code, who is who  audit.py     what is written down at both sides
    folders.py, templates/     the files of a federation, on one machine or several
    local.py, processes.py     a federation on this machine, looked after; memory.py: in this process
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
