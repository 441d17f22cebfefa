"""Real federations on Flower: both apps, the guard in front of aggregation, and what starts them on machines.

`client_app` and `server_app` play the same experiment file as `ecgr run`, through the same training, aggregation and
recording code, so that a federation in which nobody fails gives the same bits. Only this package imports flwr.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ecgr.errors import EnvironmentFault, missing_extra


class FlowerMissing(EnvironmentFault, ImportError):
    """Flower is an extra, and is not installed."""


if find_spec("flwr") is None:
    raise FlowerMissing(str(missing_extra("a federation", "flower")))

if TYPE_CHECKING:
    from ecgr.flower.apps.memory import MemoryGrid as MemoryGrid
    from ecgr.flower.apps.server import server_app as server_app
    from ecgr.flower.apps.site import client_app as client_app
    from ecgr.flower.guard import Guard as Guard
    from ecgr.flower.guarded import Guarded as Guarded

_HOMES = {
    "Guard": "guard",
    "Guarded": "guarded",
    "MemoryGrid": "apps.memory",
    "client_app": "apps.site",
    "server_app": "apps.server",
}

__all__ = ["FlowerMissing", "Guard", "Guarded", "MemoryGrid", "client_app", "server_app"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ecgr.flower' has no attribute {name!r}")
    value = getattr(import_module(f"ecgr.flower.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
