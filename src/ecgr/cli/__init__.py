"""The command line: parse, call, print. Every command is a few lines over the library."""

import os
import signal
import sys
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and exit with its documented code; Ctrl-C is answered from the first import on."""
    listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job's is not to be changed
    if listens:
        signal.signal(signal.SIGINT, _leave)
    from ecgr.cli.app import run_command_line
    from ecgr.cli.console import interrupt

    if listens:
        signal.signal(signal.SIGINT, interrupt)
    code = run_command_line()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is said and written
    sys.exit(code)


def _leave(number: int, frame: object) -> NoReturn:
    """While modules are imported an exception could end up anywhere; there is nothing to clean up yet."""
    os.write(2, b"ecgr: interrupted before anything was done\n")
    os._exit(130)
