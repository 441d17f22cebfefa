"""What clients remember from round to round: the seam, and the states of a simulation that keeps none on disk."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping

from ecgr.component import State


class ClientStates(Mapping[int, State]):
    """The states of the clients that have taken part; a round makes a new set of them and leaves the old one valid."""

    @abstractmethod
    def updated(self, rounds: int, states: Mapping[int, State]) -> "ClientStates":
        """All states after round ``rounds``, in which these are new."""


class StatesInMemory(ClientStates):
    """States in a dict."""

    def __init__(self, states: Mapping[int, State] | None = None) -> None:
        self._states = dict(states or {})

    def __getitem__(self, client: int) -> State:
        return self._states[client]

    def __iter__(self) -> Iterator[int]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def updated(self, rounds: int, states: Mapping[int, State]) -> "StatesInMemory":
        """All states after round ``rounds``, in which these are new."""
        return StatesInMemory({**self._states, **states})
