"""Trains one client in a process of its own and prints that process's peak memory in bytes."""

import sys
from pathlib import Path

import torch

from benchmarks.problems import one_job, problem
from ecgr.client import train_client
from ecgr.workspace import Workspace

BATCH = 4


def peak() -> int:
    """VmHWM: the most memory this process has had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main(model: str, T: int, store: str) -> None:
    torch.set_num_threads(1)
    changes = {"regulator__name": "none"} if store == "none" else {"run__store": store}
    chosen = problem(model, samples=BATCH * T, batch_size=BATCH, test=8, **changes)
    train_client(one_job(chosen), Workspace(chosen))
    sys.stdout.write(f"{peak()}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
