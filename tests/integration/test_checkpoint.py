"""Checkpoints: always loadable after a kill, and no damage goes unnoticed."""

import os
import select
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ecgr.errors import EnvironmentFault, IntegrityError
from ecgr.runs.checkpoint import Restored, load_checkpoint, save_checkpoint
from ecgr.runs.record import Position
from ecgr.simulation.rounds import Snapshot, StatesInMemory

POSITION = Position(0, "")
KILLS = 10 * int(os.environ.get("ECGR_KILLS", "4"))


def snapshot(rounds: int, size: int = 20_000) -> Snapshot:
    params = torch.full((size,), float(rounds))
    return Snapshot(
        rounds=rounds,
        params=params,
        buffers={"bn.mean": params[:3].clone(), "bn.count": torch.tensor(rounds)},
        server={"control": params * 2},
        clients=StatesInMemory({3: {"control": params * 3}, 11: {"control": params * 4}}),
    )


def same(left: Snapshot, right: Snapshot) -> bool:
    def flat(s: Snapshot) -> dict[str, torch.Tensor]:
        clients = {f"{c}/{k}": v for c, state in s.clients.items() for k, v in state.items()}
        return {"params": s.params, **s.buffers, **{f"server/{k}": v for k, v in s.server.items()}, **clients}

    a, b = flat(left), flat(right)
    return left.rounds == right.rounds and a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def restored(directory: Path) -> Restored:
    found = load_checkpoint(directory)
    assert found is not None
    return found


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, snapshot(7), Position(12, "ab"))
    found = restored(tmp_path)
    assert same(found.snapshot, snapshot(7))
    assert found.position == Position(12, "ab")
    assert found.damaged == ()


def test_two_generations_are_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "missing") is None
    for rounds in range(1, 6):
        save_checkpoint(tmp_path, snapshot(rounds, size=10), POSITION)
    assert sorted(path.stem for path in tmp_path.glob("*.manifest")) == ["round-0000004", "round-0000005"]
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) == 4


def test_killed_again_and_again_while_saving_it_always_loads(tmp_path: Path) -> None:
    """A child saves one generation after the other and reports each; killed, at most the one in flight is lost."""
    rng = np.random.default_rng(0)
    directory = tmp_path / "checkpoint"
    done = 0
    for _ in range(KILLS):
        done = max(done, killed_while_saving(directory, done, float(rng.uniform(0, 0.01))))
        found = restored(directory)
        assert done <= found.snapshot.rounds <= done + 1
        assert same(found.snapshot, snapshot(found.snapshot.rounds))
        assert found.damaged == ()
        done = found.snapshot.rounds


def killed_while_saving(directory: Path, start: int, seconds: float) -> int:
    """The last generation that a child reported as saved before it was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        rounds = start
        while True:
            rounds += 1
            save_checkpoint(directory, snapshot(rounds), POSITION)
            os.write(write, f"{rounds}\n".encode())
    os.close(write)
    reported = b""
    try:
        while not reported.endswith(b"\n"):
            reported += os.read(read, 1 << 16)
        select.select([], [], [], seconds)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    while more := os.read(read, 1 << 16):
        reported += more
    os.close(read)
    return int(reported.split()[-1])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    for rounds in (1, 2):
        save_checkpoint(tmp_path / "saved", snapshot(rounds, size=500), POSITION)
    return tmp_path / "saved"


def damage_is_noticed(directory: Path, damaged: Path) -> bool:
    found = restored(directory)
    other = 1 if "0000002" in damaged.name else 2
    return found.snapshot.rounds == other and same(found.snapshot, snapshot(other, 500)) and len(found.damaged) == 1


def flipped(whole: bytes, rng: np.random.Generator) -> bytes:
    spoiled = bytearray(whole)
    spoiled[rng.integers(len(whole))] ^= 1 << rng.integers(8)
    return bytes(spoiled)


def cut_short(whole: bytes, rng: np.random.Generator) -> bytes:
    return whole[: rng.integers(len(whole))]


@pytest.mark.parametrize(("spoil", "times"), [(flipped, 1000), (cut_short, 100)])
def test_each_flipped_bit_and_each_truncation_is_noticed(saved: Path, spoil: Any, times: int) -> None:
    rng, files = np.random.default_rng(0), sorted(path for path in saved.rglob("*") if path.is_file())
    for number in range(times):
        path = files[number % len(files)]
        whole = path.read_bytes()
        path.write_bytes(spoil(whole, rng))
        assert damage_is_noticed(saved, path)
        path.write_bytes(whole)


def test_if_every_generation_is_damaged_it_refuses(saved: Path) -> None:
    for path in saved.glob("*.safetensors"):
        path.write_bytes(b"")
    with pytest.raises(IntegrityError, match="no checkpoint is whole"):
        load_checkpoint(saved)


def test_a_full_disk_leaves_the_last_checkpoint_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, snapshot(1, size=100), POSITION)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ecgr.files.os.fsync", full)
    with pytest.raises(EnvironmentFault, match=r"round-0000002.*bytes.*No space left"):
        save_checkpoint(tmp_path, snapshot(2, size=100), POSITION)
    monkeypatch.undo()
    assert same(restored(tmp_path).snapshot, snapshot(1, size=100))
    assert not list(tmp_path.glob("*.tmp"))


def test_a_missing_tensor_file_counts_as_damage(saved: Path) -> None:
    (saved / "round-0000002.safetensors").unlink()
    assert restored(saved).snapshot.rounds == 1
    shutil.rmtree(saved)
    assert load_checkpoint(saved) is None
