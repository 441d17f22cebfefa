"""Jobs on a Ray cluster; nothing outside of this folder imports Ray, and nothing here does before a cluster is used."""

from ecgr.simulation.engines.ray.cluster import Cluster as Cluster
from ecgr.simulation.engines.ray.pool import RayPool as RayPool
from ecgr.simulation.engines.ray.pool import Rest as Rest
