"""Time for federations in one process."""


class Ticks:
    """A clock that only sleeping moves: deadlines without waiting, and the same on every machine."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Seconds slept."""
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self._seconds += seconds
