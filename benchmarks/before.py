"""A comparison by the code of an earlier commit and by this one: `python -m benchmarks.before [COMMIT [PAIRS]]`.

Forty runs, {fedavg, scaffold} x {none, ecgr} x ten seeds on the digits, from the command to the page, in turn; printed
is the processor time of each, workers included, and their ratio. The earlier code is taken out of this repository's
history into a temporary folder, and runs in this environment. Not part of `python -m benchmarks`: a pair takes minutes.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.rows import ROOT, environment, processor_seconds_of_children

COMMIT = "223715a"
"""The last one before a lean start, workers that are used again, and SGD without what small models do not need."""
SETTINGS = """\
[data]
name = "digits"
[partition]
name = "dirichlet"
clients = 10
alpha = 0.05
min_batches = 2
[model]
name = "lenet"
[optimizer]
lr = 0.01
[federation]
rounds = 7
batch_size = 16
"""
METHODS = ("--methods", "fedavg,fedavg+ecgr,scaffold,scaffold+ecgr")
EARLIER = ("--algorithms", "fedavg,scaffold", "--regulators", "none,ecgr")
"""The same runs by the options that there were."""
SEEDS = ("--seeds", "0,1,2,3,4,5,6,7,8,9")
START = "import sys; from ecgr.cli.app import app; sys.argv[0] = 'ecgr'; app()"


def main(commit: str = COMMIT, pairs: str = "2") -> None:
    with tempfile.TemporaryDirectory(prefix="ecgr-") as scratch:
        folder = Path(scratch)
        earlier = folder / "earlier"
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", str(earlier), commit], check=True)
        try:
            (folder / "verdict.toml").write_text(SETTINGS, encoding="utf-8")
            for pair in range(int(pairs)):
                before = processor_seconds(folder, f"before-{pair}", earlier, *EARLIER)
                now = processor_seconds(folder, f"now-{pair}", ROOT, *METHODS)
                sys.stdout.write(f"{before:.1f} s by {commit}, {now:.1f} s now: {now / before:.2f}\n")
                sys.stdout.flush()
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(earlier)], check=True)


def processor_seconds(folder: Path, out: str, tree: Path, *options: str) -> float:
    """Of the comparison by the code in ``tree``, with all processes that it starts."""
    command = [sys.executable, "-c", START, "compare", "verdict.toml", *SEEDS, "--workers", "2", "--out", out]
    code = os.pathsep.join([str(tree / "src"), str(ROOT)])
    used = processor_seconds_of_children()
    subprocess.run(
        [sys.executable, "-m", "benchmarks.counted", *command, *options],
        cwd=folder, env={**environment(), "PYTHONPATH": code}, check=True, capture_output=True,
    )  # fmt: skip
    return processor_seconds_of_children() - used


if __name__ == "__main__":
    main(*sys.argv[1:])
