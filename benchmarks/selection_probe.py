"""Times both searches in a process of its own whose allocator keeps what was freed; prints their seconds.

Most of the explicit search's time goes into fresh memory: what `torch.stack` returns at every step is given back to the
system and has to be had again, page by page. How much that costs depends on the machine and on what the process did
before, so this is the other end of the range: no page is ever given back.
"""

import json
import os
import statistics
import subprocess
import sys

import torch

from benchmarks.explicit_search import explicit_search
from benchmarks.rows import ROOT, environment, seconds
from benchmarks.steps import hold, steps_like_training
from ecgr.core.regulators import herd

KEEPS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**40), "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": "0"}


def probe(T: int, d: int) -> tuple[float, float]:
    """Seconds of the explicit search and of ours."""
    command = [sys.executable, "-m", "benchmarks.selection_probe", str(T), str(d)]
    variables = {**environment(), **KEEPS_MEMORY}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True)
    explicit, ours = json.loads(done.stdout)
    return explicit, ours


def main(T: int, d: int) -> None:
    torch.set_num_threads(1)
    steps = steps_like_training(T, d)
    store = hold(steps)
    explicit = [seconds(lambda: explicit_search(steps, T // 2)) for _ in range(3)][1:]  # the first one gets the memory
    ours = [seconds(lambda: herd(store.gram(), T // 2)) for _ in range(6)][1:]
    sys.stdout.write(json.dumps([statistics.median(explicit), statistics.median(ours)]) + os.linesep)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
