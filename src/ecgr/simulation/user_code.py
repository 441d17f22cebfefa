"""An exception in a user's model, loss, regulator or algorithm becomes one line with its place."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from ecgr.errors import ConfigError, EcgrError

NOT_USER_CODE = frozenset({"ecgr", "torch", "numpy", "scipy", "sklearn", *sys.stdlib_module_names}) - {"__main__"}


@contextmanager
def user_code(where: str) -> Iterator[None]:
    """What user code raises in this block becomes one line; what ecgr raises stays as it is."""
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
    """The innermost line of user code that the exception passed; None if it passed none."""
    frames = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] not in NOT_USER_CODE
    ]
    if not frames:
        return None
    frame, line = frames[-1]
    return f"{Path(frame.f_code.co_filename).name}, line {line}, in {frame.f_code.co_name}"
