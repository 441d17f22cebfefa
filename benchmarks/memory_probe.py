"""Trains one client in a process of its own and prints that process's peak memory in bytes."""

import sys
from pathlib import Path

import torch

from benchmarks.problems import one_job, problem
from ecgr.core.geometry import Geometry
from ecgr.core.regulators import ECGR
from ecgr.core.stores import STORES
from ecgr.simulation.client import train_client
from ecgr.simulation.workspace import Workspace

BATCH = {"lenet": 128, "resnet18": 2}
"""The paper's for LeNet; a small one for ResNet-18, whose round would take minutes."""


def peak() -> int:
    """VmHWM: the most memory this process has had."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def load_code() -> None:
    """Use every store once, on steps of a few kilobytes, so that the pages of torch's code that it runs are in memory.

    Both sides of the comparison do so: those 2.5 MB are the same for every model and shared by all processes, and are
    not what is compared here, the room that steps take.
    """
    steps = torch.randn(8, 600)
    for make in STORES.values():
        store = make(steps.shape[1], steps=len(steps))
        for step in steps:
            store.append(step)
        store.combine(ECGR()(Geometry(gram=store.gram())).coefficients)


def main(model: str, T: int, store: str) -> None:
    torch.set_num_threads(1)
    load_code()
    changes = {"regulator__name": "none"} if store == "none" else {"run__store": store}
    chosen = problem(model, samples=BATCH[model] * T, batch_size=BATCH[model], test=8, **changes)
    train_client(one_job(chosen), Workspace(chosen))
    sys.stdout.write(f"{peak()}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
