"""Records T steps of d parameters and regulates them, in a process of its own; prints peak memory and seconds."""

import json
import sys

import torch

from benchmarks.memory_probe import peak
from benchmarks.rows import seconds
from ecgr.core.recorder import Recorder
from ecgr.core.regulators import ECGR


def main(T: int, d: int) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(d, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    drift = torch.randn(1, d, generator=generator)
    with Recorder(model, optimizer) as steps:
        for step in range(T):
            fading = 1.0 - 1.4 * step / T
            model.weight.grad = torch.randn(1, d, generator=generator) + fading * drift
            optimizer.step()
    taken = seconds(lambda: steps.regulated(ECGR()))
    sys.stdout.write(json.dumps({"peak": peak(), "seconds": taken}) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
