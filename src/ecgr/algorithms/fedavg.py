"""FedAvg: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al., 2017)."""

from collections.abc import Sequence

from ecgr.algorithms.base import Combined, Defaults, Population, Upload, combined
from ecgr.component import Positive, State, component


@component
class FedAvg(Defaults):
    """No correction: average the clients' updates by their examples.

    ``server_lr`` is the older way to say ``server.lr``.

    >>> FedAvg(server_lr=1.05)
    FedAvg(server_lr=1.05)
    """

    server_lr: Positive = 1.0

    def combine(
        self, server: State, results: Sequence[Upload], population: Population, lr: float
    ) -> tuple[Combined, State]:
        """``server_lr`` times the mean update."""
        return combined(results, self.server_lr), server
