"""Memory of long rounds: one T x T matrix of inner products, and nothing else of that size, whatever regulates.

Measured as the peak of a process of its own (VmHWM, which Linux sets back on request), in units of that matrix.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ecgr.core.regulators import REGULATORS
from ecgr.core.stores import STORES

SCRIPT = """
import json
from pathlib import Path
import torch
from ecgr.core.geometry import Geometry, is_finite
from ecgr.core.recorder import Recorder
from ecgr.core.regulators import REGULATORS
from ecgr.core.stores import STORES

T, d = 3000, 40
torch.set_num_threads(1)

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

def matrices(work):
    work()  # once before, so that the code it runs is loaded
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = status("VmRSS")
    work()
    return (status("VmHWM") - before) / (8 * T * T)

def regulated(regulator):
    model = torch.nn.Linear(d, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, optimizer) as steps:
        for row in rows:
            model.weight.grad = row[None]
            optimizer.step()
    return lambda: steps.regulated(regulator)

rows = torch.randn(T, d, generator=torch.Generator().manual_seed(0)) + 0.1
found = {"store": {}, "regulator": {}, "recorder": {}}
for name, kind in STORES.items():
    store = kind(d)
    for row in rows:
        store.append(row)
    found["store"][name] = matrices(store.gram)
geometry = Geometry(store.gram())
for name, regulator in REGULATORS.items():
    found["regulator"][name] = matrices(lambda: is_finite(geometry.gram) and regulator()(Geometry(geometry.gram)))
for name in ("ecgr", "bherd"):
    found["recorder"][name] = matrices(regulated(REGULATORS[name]()))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_there_is_never_a_second_matrix_of_all_inner_products() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert set(found["store"]) == set(STORES)
    assert set(found["regulator"]) == set(REGULATORS)
    for part, most in {"store": 1.6, "regulator": 0.2, "recorder": 1.6}.items():
        over = {name: matrices for name, matrices in found[part].items() if matrices > most}
        assert not over, f"{part}: {over} matrices, allowed {most}"
    assert all(matrices > 0.9 for matrices in found["store"].values()), "the measurement sees the one that is there"
