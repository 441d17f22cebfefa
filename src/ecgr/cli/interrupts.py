"""Ctrl-C: one line that says what is kept and which command goes on, and exit code 130, whenever it comes."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from ecgr.errors import EcgrError

_came = False


class Interrupted(EcgrError):
    """Somebody pressed Ctrl-C."""

    exit_code = 130


def interrupt(number: int, frame: object) -> NoReturn:
    """The handler of Ctrl-C: the first ends the work in order, the second at once."""
    global _came  # noqa: PLW0603 - a signal is global
    if _came:
        os.write(2, b"ecgr: interrupted twice; left at once\n")
        os._exit(Interrupted.exit_code)
    _came = True
    raise KeyboardInterrupt


def was_interrupted(error: BaseException | None = None) -> bool:
    """Whether Ctrl-C is behind an error: raised inside an import it can come out as anything."""
    return _came or isinstance(error, (KeyboardInterrupt, Interrupted))


@contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """Around work that can be gone on with: an interruption says what ``kept`` says then."""
    try:
        yield
    except BaseException as error:
        if not was_interrupted(error):
            raise
        raise Interrupted(f"interrupted; {kept()}") from None


def this_command(*more: str) -> str:
    """The command line as it was given, with options that are not there yet."""
    given = sys.argv[1:]
    return shlex.join(["ecgr", *given, *(option for option in more if option not in given)])
