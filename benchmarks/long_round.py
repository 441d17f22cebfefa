"""A round of very many steps: ECGR's seconds and peak memory, where T x T inner products outweigh all else."""

import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.rows import ROOT, Row, at_most, environment

T, D = 20_000, 1_000


def rows(quick: bool) -> Iterator[Row]:
    if quick:
        return
    command = [sys.executable, "-m", "benchmarks.long_round_probe", str(T), str(D)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    where = f"T = {T:,}, d = {D:,}"
    matrix = 8 * T * T
    note = f"{found['peak'] / 1e9:.2f} GB, of which the inner products of all steps are {matrix / 1e9:.1f}"
    yield at_most(f"memory: peak of ECGR's process / 4 GB, {where}", found["peak"] / 4e9, 1.0, note)
    yield at_most(f"memory: seconds of ECGR / 60, {where}", found["seconds"] / 60, 1.0, f"{found['seconds']:.0f} s")
