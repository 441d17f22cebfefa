"""A problem on its way to another machine, which has none of this one's files."""

import pickle
from pathlib import Path

import numpy as np
import torch

import ecgr
from ecgr.experiment.config import load
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
    here, beyond = Portable.of(problem), Portable.of(problem, beyond=True)
    content = pickle.dumps((beyond.train.inputs.numpy(), beyond.train.targets.numpy()), protocol=5)
    assert len(pickle.dumps(here.train.inputs)) < inputs.nbytes  # the file's place alone
    (tmp_path / "inputs.npy").unlink()
    assert np.array_equal(pickle.loads(content)[0], inputs)
    assert np.array_equal(beyond.open().train.inputs.numpy(), inputs)
