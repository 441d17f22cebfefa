"""What starting a training process costs: processor time of one short run, over that of ``import torch`` alone."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.rows import Row, at_most, environment, processor_seconds_of_children

NAME = "start: processor seconds of the shortest `ecgr run`, over those of `import torch`"
LIMIT = 1.5
SHORT = ("federation.rounds=1", "partition.clients=2", "data.fraction=0.1")


def rows(quick: bool) -> Iterator[Row]:
    with TemporaryDirectory(prefix="ecgr-") as folder:
        torch, whole = [], []
        for i in range(3 if quick else 5):
            torch.append(processor_seconds("-c", "import torch"))
            out = str(Path(folder) / str(i))
            settings = [word for setting in SHORT for word in ("--set", setting)]
            whole.append(processor_seconds("-m", "ecgr", "run", *settings, "--workers", "1", "--out", out))
    over = median(b - a for a, b in zip(torch, whole, strict=True))
    yield at_most(NAME, over, LIMIT, f"{median(whole):.2f} s against {median(torch):.2f} s")


def processor_seconds(*arguments: str) -> float:
    """Of a Python process and its children, once it has ended."""
    before = processor_seconds_of_children()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment())
    return processor_seconds_of_children() - before
