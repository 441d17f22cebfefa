"""What ``run.precision = "bf16"`` is worth: processor time of whole rounds of the paper's CNN against float32.

Training, regulation, aggregation and evaluation count; as in CIFAR-10 there is one test image to five trained ones.
A processor without bfloat16 instructions has to emulate them: there the row stands without a threshold.
"""

import time
from collections.abc import Iterator
from statistics import median

import torch

from benchmarks.problems import problem, rounds_on
from benchmarks.rows import Row, at_least, shown
from ecgr.simulation.engines import SerialEngine

NAME = "precision: seconds per round, float32 / bf16, cnn of width 1, batches of 16"
LIMIT = 1.4
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""What processors call theirs."""


def rows(quick: bool) -> Iterator[Row]:
    able = any(torch.cpu.get_capabilities().get(name) for name in INSTRUCTIONS)
    samples = 320 if able and not quick else 160
    problems = [
        problem("cnn", samples=samples, clients=2, batch_size=16, test=samples // 5, run__precision=precision)
        for precision in ("float32", "bf16")
    ]
    plays = [rounds_on(SerialEngine(chosen), chosen) for chosen in problems]
    times: list[list[float]] = [[], []]
    for _ in range(4 if able else 2):  # the first round of a process is slow, and left out
        for own, play in zip(times, plays, strict=True):
            began = time.process_time()
            play()
            own.append(time.process_time() - began)
    exact, half = times[0][1:], times[1][1:]
    ratio = median(a / b for a, b in zip(exact, half, strict=True))
    note = f"{median(exact):.2f} s against {median(half):.2f} s of processor time"
    if able:
        yield at_least(NAME, ratio, LIMIT, note)
    else:
        yield shown(NAME, ratio, f"{note}; no threshold: this processor has no bfloat16 instructions")
