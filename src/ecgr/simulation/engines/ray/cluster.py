"""Which Ray cluster, and what is checked before it gets any work: reached, large enough, of the same versions."""

import logging
import os
import platform
import socket
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from ecgr._version import __version__
from ecgr.errors import ConfigError, EnvironmentFault, missing_extra

VERSIONS: Mapping[str, str] = {
    "ecgr": __version__,
    "torch": torch.__version__,
    "Python": platform.python_version(),
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster, and what a worker takes of it: ``engine=Cluster(address="10.0.0.1:6379", gpus=0.25)``.

    Attributes:
        address: of a cluster that runs already, by default that in ``RAY_ADDRESS``; without one, a cluster is started
            on this machine and ends with the work.
        cpus: of each worker.
        gpus: of each worker; a fraction lets several share one.
    """

    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    elsewhere: ClassVar[bool] = True
    beyond: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.cpus < float("inf"):
            raise ConfigError(f"--cpus-per-worker: {self.cpus:g} does not fit; give a number above 0, such as 1 or 0.5")
        if not 0 <= self.gpus < float("inf") or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ConfigError(f"--gpus-per-worker: {self.gpus:g} does not fit; give a share up to 1, or a whole number")

    def open(self, open_workspace: Callable[[], Any], workers: int | None) -> AbstractContextManager[Any]:
        """So many actors; None: as many as there is room for."""
        from ecgr.simulation.engines.ray.pool import RayPool  # which needs this module

        return RayPool(open_workspace, workers, self)


def connect(cluster: Cluster, workers: int | None) -> bool:
    """Join the cluster, or start one on this machine; whether it was started here and so ends with us."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise missing_extra("the engine ray", "ray") from None
    if ray.is_initialized():
        _register(ray)
        return False
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    _check_reachable(address)
    local: dict[str, Any] = {
        "num_cpus": max(1, ceil(workers * cluster.cpus)) if workers else None,
        "include_dashboard": False,
        # as in a spawned process: what can be imported here can be imported there
        "runtime_env": {"env_vars": {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}},
    }
    try:
        ray.init(
            address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **({} if address else local)
        )
    except (ConnectionError, RuntimeError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise EnvironmentFault(f"ray: cannot use the cluster at {address or 'this machine'}: {reason}") from None
    _register(ray)
    return True


def _check_reachable(address: str | None) -> None:
    """Ask before Ray does, which tries for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return  # none, or a word such as "auto"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EnvironmentFault(f"ray: cannot use the cluster at {address}: {reason}; is its head node up?") from None


def _register(ray: Any) -> None:
    """Tensors travel as arrays, which actors read from shared memory without a copy."""
    ray.util.register_serializer(Tensor, serializer=_as_array, deserializer=_as_tensor)


def _as_array(tensor: Tensor) -> Any:
    return tensor.detach().cpu().numpy()


def _as_tensor(array: Any) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes to the data
        return torch.from_numpy(array)


def room(cluster: Cluster) -> int:
    """How many workers fit on the cluster as it is; one on which none does is refused."""
    import ray

    nodes = [node["Resources"] for node in cast("Any", ray).nodes() if node["Alive"]]
    wanted = {kind: share for kind, share in (("CPU", cluster.cpus), ("GPU", cluster.gpus)) if share}
    fit = sum(min(int(node.get(kind, 0.0) / share) for kind, share in wanted.items()) for node in nodes)
    if fit:
        return fit
    for kind, share in wanted.items():
        most = max((node.get(kind, 0.0) for node in nodes), default=0.0)
        if most < share:
            raise EnvironmentFault(
                f"ray: a worker wants {share:g} {kind}s and no node of the cluster has more than {most:g};"
                f" ask for fewer (--{kind.lower()}s-per-worker)"
            )
    raise EnvironmentFault(
        f"ray: no node of the cluster has both {cluster.cpus:g} CPUs and {cluster.gpus:g} GPUs for a worker;"
        " ask for fewer (--cpus-per-worker, --gpus-per-worker)"
    )


def check_versions(theirs: Mapping[str, str]) -> None:
    """Refuse a node on which anything that decides about bits is another."""
    wrong = [f"{name} {theirs.get(name)} (here {own})" for name, own in VERSIONS.items() if theirs.get(name) != own]
    if wrong:
        raise EnvironmentFault(
            f"ray: a node has {', '.join(wrong)}; the bits would differ: install the same everywhere"
        )
