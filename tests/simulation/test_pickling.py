"""A problem on its way to another machine, which has none of this one's files."""

import pickle
from pathlib import Path

import numpy as np
import torch

import ecgr
from ecgr.config.experiment import load
from ecgr.simulation.pickling import pack, unpack
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import Portable


def test_mapped_arrays_travel_beyond_this_machine_and_stay_on_it_otherwise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(64, 4)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", inputs)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    targets = (inputs[:, 0] > 0).astype(np.int64)
    task = ecgr.Task(
        model=lambda: torch.nn.Linear(4, 2), train=(mapped, targets), test=(inputs[:8], targets[:8]), clients=2
    )
    problem = prepare(load(task, {"federation.batch_size": 8}), task.load())
    here, remote = Portable.of(problem), Portable.of(problem, remote=True)
    content = pickle.dumps((remote.train.inputs.numpy(), remote.train.targets.numpy()), protocol=5)
    assert len(pickle.dumps(here.train.inputs)) < inputs.nbytes  # the file's place alone
    (tmp_path / "inputs.npy").unlink()
    assert np.array_equal(pickle.loads(content)[0], inputs)
    assert np.array_equal(remote.open().train.inputs.numpy(), inputs)


def test_what_is_shared_is_named_and_not_packed_again() -> None:
    shared, own = (torch.zeros(10_000), {"buffer": torch.ones(2)}), torch.ones(3)
    content = pack({"params": shared[0], "buffers": shared[1], "own": own}, shared)
    assert len(content) < 1_000
    held = unpack(pack(shared))
    found = unpack(content, held)
    assert found["params"] is held[0]
    assert found["buffers"] is held[1]
    assert torch.equal(found["own"], own)
