"""What clients remember from round to round: the seam, and the states of a simulation that keeps none on disk."""

from abc import abstractmethod
from collections.abc import Mapping

from ecgr.component import State


class ClientStates(Mapping[int, State]):
    """The states of the clients that have taken part; a round makes a new set of them and leaves the old one valid."""

    @abstractmethod
    def updated(self, rounds: int, states: Mapping[int, State]) -> "ClientStates":
        """All states after round ``rounds``, in which these are new."""


class StatesInMemory(dict[int, State], ClientStates):
    """States in a dict."""

    def updated(self, rounds: int, states: Mapping[int, State]) -> "StatesInMemory":
        """All states after round ``rounds``, in which these are new."""
        return StatesInMemory({**self, **states})
