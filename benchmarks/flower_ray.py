"""The same work in Flower's own simulation engine (Ray), which is installed for this comparison only.

Where the interpreter that runs the benchmarks lacks ``flwr[simulation]``, ``$ECGR_FLOWER_PYTHON`` may name one that has
it, together with this package; otherwise the comparison is reported as not measured.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.rows import ROOT, Row, at_least, environment, not_measured, shown

CASES = {(10, 6000): 1.8, (200, 300): 12.0}
"""Clients and samples of each: how many times faster this simulator has to be."""


def rows(quick: bool) -> Iterator[Row]:
    python = os.environ.get("ECGR_FLOWER_PYTHON", sys.executable)
    usable = [python, "-c", "import flwr.simulation, ray, ecgr"]
    found = subprocess.run(usable, cwd=ROOT, env=environment(), capture_output=True, check=False).returncode == 0
    for (clients, samples), limit in CASES.items():
        name = f"simulator: Flower with Ray / ours, {clients} clients of {samples:,} samples"
        if not found:
            yield not_measured(name, limit, "at least", "needs flwr[simulation]; see benchmarks/flower_ray.py")
            continue
        if quick and clients > 10:
            continue
        for style in ("tutorial", "tuned") if clients == 10 else ("tutorial",):
            command = [python, "-m", "benchmarks.flower_probe", str(clients), str(samples), style]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
                yield not_measured(name, limit, "at least", reason)
                break
            measured = json.loads(done.stdout.strip().splitlines()[-1])
            note = f"{measured['flower']:.2f} s against {measured['ours']:.2f} s a round"
            ratio = measured["flower"] / measured["ours"]
            yield (
                at_least(name, ratio, limit, note)
                if style == "tutorial"
                else shown(f"{name}, tuned client", ratio, note)
            )
