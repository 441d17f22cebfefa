"""An exception in somebody's own model, loss, regulator or algorithm, said in one line with its place."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from ecgr.errors import ConfigError, EcgrError

NOT_THEIRS = frozenset({"ecgr", "torch", "numpy", "scipy", "sklearn", *sys.stdlib_module_names}) - {"__main__"}


@contextmanager
def own_code(where: str) -> Iterator[None]:
    """What somebody's own code raises in here becomes one line; what ours raises stays as it is."""
    try:
        yield
    except EcgrError:
        raise
    except Exception as error:
        place = _place(error)
        if place is None:
            raise
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"{where}: {type(error).__name__}: {reason} ({place})") from error


def _place(error: Exception) -> str | None:
    """The innermost line of somebody's own code that the exception went through; None where it went through none."""
    theirs = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in NOT_THEIRS
    ]
    if not theirs:
        return None
    frame, line = theirs[-1]
    return f"{Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
