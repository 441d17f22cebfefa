"""`--dry-run`: what there is to do, and how long it will take on this machine."""

from collections.abc import Mapping, Sequence

from ecgr.cli.console import complain, err, say
from ecgr.errors import DataError
from ecgr.runs.sweep import Planned


def list_plans(plans: Sequence[Planned], workers: int) -> None:
    """Print each run with its state and time, and the whole; nothing is written."""
    left = [planned for planned in plans if not planned.finished]
    seconds = _seconds(left)
    for planned in plans:
        state = "finished" if planned.finished else f"{planned.rounds_done} rounds done"
        time = f"  about {duration(seconds[planned.name])}" if planned.name in seconds else ""
        say(f"{planned.name}  {state}{time}")
    say(f"{len(plans)} runs, {len(left)} to do")
    if seconds:
        # The last run of a worker cannot be shared, so no sweep is shorter than its longest run.
        whole = max(sum(seconds.values()) / workers, *seconds.values())
        processes = "one process" if workers == 1 else f"{workers} processes"
        estimate = f"about {duration(whole)} with {processes}, calibrated just now"
        say(f"{estimate}; longer where the machine has other work")


def _seconds(left: Sequence[Planned]) -> dict[str, float]:
    """The time of each run by name; empty, with a line that says why, where there are no data to calibrate with."""
    if not left:
        return {}
    from ecgr.runs.calibration import calibrate  # loads torch

    with err.status("calibrating") as status:
        try:
            rounds = calibrate(
                [planned.experiment for planned in left], lambda kind: status.update(f"calibrating: {kind}")
            )
        except DataError as error:
            complain(f"note: no estimate of the time: {error}")
            return {}
    return {planned.name: _left(planned, rounds) for planned in left}


def _left(planned: Planned, rounds: Mapping[str, float]) -> float:
    experiment = planned.experiment
    return rounds[experiment.key()] * (experiment.federation.rounds - planned.rounds_done)


def duration(seconds: float) -> str:
    """A time to read.

    >>> duration(42.4), duration(200), duration(8000)
    ('42 s', '3 min 20 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
