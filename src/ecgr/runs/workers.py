"""How many processes to use."""

import os

from ecgr.errors import ConfigError

AUTO = "auto"


def worker_count(workers: int | str) -> int:
    """So many, or as many as there are cores for this process.

    >>> worker_count(3), worker_count("3"), worker_count("auto") == cores()
    (3, 3, True)
    """
    if workers == AUTO:
        return cores()
    text = str(workers)
    if isinstance(workers, bool) or not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"--workers: {workers!r} does not fit; give a whole number, at least 1, or auto")
    return int(text)


def asked_workers(workers: int | str, remote: bool) -> int | None:
    """So many; None, as many as there is room for, with ``auto`` where there may be more machines than this one."""
    return None if remote and workers == AUTO else worker_count(workers)


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1
