"""Ways of dealing samples out to clients. Needs numpy, not torch."""

from ecgr.tables import Table
from ecgr.tasks.partitioners.partition import Partition, Partitioner, deal_out, top_up
from ecgr.tasks.partitioners.partition_file import load_partition, save_partition
from ecgr.tasks.partitioners.partitioners import IID, Dirichlet, Groups, Quantity, Shards

PARTITIONERS: Table[Partitioner] = Table(
    "partitioner",
    "partitioners",
    {
        "iid": IID,
        "dirichlet": Dirichlet,
        "shards": Shards,
        "quantity": Quantity,
        "groups": Groups,
    },
)

__all__ = [
    "IID",
    "PARTITIONERS",
    "Dirichlet",
    "Groups",
    "Partition",
    "Partitioner",
    "Quantity",
    "Shards",
    "deal_out",
    "load_partition",
    "save_partition",
    "top_up",
]
