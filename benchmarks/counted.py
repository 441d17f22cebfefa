"""Runs a command and ends after its last process has: `python -m benchmarks.counted COMMAND`.

Processor time counts for a process that waits for another. Workers are waited for by the process that they were forked
from, and that one by nobody once the command has ended; so what is left behind is handed on to here.
"""

import ctypes
import os
import subprocess
import sys
from contextlib import suppress

PR_SET_CHILD_SUBREAPER = 36  # as in prctl.h


def main() -> int:
    """Run the command of the command line; its exit code."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = subprocess.run(sys.argv[1:], check=False).returncode
    with suppress(ChildProcessError):
        while True:
            os.wait()
    return code


if __name__ == "__main__":
    sys.exit(main())
