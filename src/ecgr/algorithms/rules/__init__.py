"""Server rules: how the round's update becomes the next model. Any of them goes with any local correction.

A rule is a frozen dataclass, its own configuration. Its neutral value is plain averaging, to the bit. What it hands out
(``served``) need not be where clients start; buffers it never sees.
"""

from ecgr.algorithms.protocol import ServerRule
from ecgr.algorithms.rules.adaptive import Adam, Yogi
from ecgr.algorithms.rules.average import Average
from ecgr.algorithms.rules.ema import EMA
from ecgr.algorithms.rules.exp import Extrapolation
from ecgr.algorithms.rules.lookahead import Lookahead
from ecgr.algorithms.rules.momentum import HeavyBall
from ecgr.algorithms.rules.nur import NormUnion
from ecgr.tables import Table

SERVER_RULES: Table[ServerRule] = Table(
    "server rule",
    "server_rules",
    {
        "average": Average,
        "momentum": HeavyBall,
        "adam": Adam,
        "yogi": Yogi,
        "lookahead": Lookahead,
        "exp": Extrapolation,
        "ema": EMA,
        "nur": NormUnion,
    },
)

__all__ = ["EMA", "SERVER_RULES", "Adam", "Average", "Extrapolation", "HeavyBall", "Lookahead", "NormUnion", "Yogi"]
