"""``python -m benchmarks`` is ``ecgr bench``."""

import sys

from ecgr.cli import main

sys.argv[1:1] = ["bench"]
main()
