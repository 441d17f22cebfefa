"""Every entry of STORES answers like dense float64 mathematics on what was appended, and says what room it takes."""

import errno
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD

import ecgr
from ecgr.core import stores
from ecgr.core.regulators import ECGR
from ecgr.core.stores import STORES, DenseStore, check_room, pick
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.simulation.client import train_client
from ecgr.simulation.rounds import round_jobs, start
from ecgr.simulation.workspace import Workspace
from ecgr.testing import _check_answers
from support.problems import four_clients, same_bits
from support.quick import examples

every = pytest.mark.parametrize("name", sorted(STORES))

TOLERANCES = {"int8": 2e-2}
"""How far answers may be from exact arithmetic, relative to the steps' lengths; others are held to 1e-6."""


def filled(name: str, rows: Tensor, steps: int | None = None) -> DenseStore:
    store = STORES[name](rows.shape[1], steps=steps)
    for row in rows:
        store.append(row)
    return store


def random_rows(T: int, d: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((T, d))).float()


def check_against_dense(name: str, rows: Tensor) -> None:
    store = filled(name, rows)
    _check_answers(name, store, rows.double(), TOLERANCES.get(name, 1e-6))
    assert store.combine(torch.ones(len(rows), dtype=torch.float64)).dtype == torch.float32


@every
@examples(25)
@given(T=st.integers(1, 70), d=st.integers(1, 300))
def test_answers_equal_dense_mathematics(name: str, T: int, d: int) -> None:
    check_against_dense(name, random_rows(T, d))


@every
@pytest.mark.parametrize("T", [stores.ROWS_PER_CHUNK - 1, stores.ROWS_PER_CHUNK, stores.ROWS_PER_CHUNK + 1, 65])
@pytest.mark.parametrize("d", [1, stores.COLUMNS_PER_BLOCK - 1, stores.COLUMNS_PER_BLOCK, stores.COLUMNS_PER_BLOCK + 1])
def test_nothing_changes_at_the_borders_of_chunks_and_blocks(name: str, T: int, d: int) -> None:
    check_against_dense(name, random_rows(T, d))


@every
def test_a_large_set_stays_within_its_tolerance(name: str) -> None:
    """Beyond 2^26 multiply-adds products are float32: 200 steps of 7,000 numbers are 2.8e8 of them."""
    assert stores.CHEAP_PRODUCT < 200 * 200 * 7000
    check_against_dense(name, random_rows(200, 7000))


@every
@pytest.mark.parametrize("shape", [(4,), (6,), (1,), (5, 1), (1, 5), ()])
def test_a_displacement_of_another_shape_is_refused_and_nothing_is_stored(name: str, shape: tuple[int, ...]) -> None:
    store = STORES[name](5)
    store.append(torch.ones(5))
    with pytest.raises(ValueError, match="5"):
        store.append(torch.zeros(shape))
    assert len(store) == 1


@every
@pytest.mark.parametrize("wrong", [3, 1, 0])
def test_coefficients_must_be_as_many_as_the_steps(name: str, wrong: int) -> None:
    store = filled(name, random_rows(2, 5))
    with pytest.raises(ValueError, match="each of 2 steps"):
        store.combine(torch.ones(wrong, dtype=torch.float64))


@every
def test_an_entry_is_called_what_it_calls_itself(name: str) -> None:
    assert STORES[name].name == name
    assert filled(name, random_rows(2, 5)).name == ("dense" if name == "auto" else name)


@every
@pytest.mark.parametrize(("T", "d"), [(3, 7), (40, 1000)])
def test_a_store_takes_the_room_that_it_says(name: str, T: int, d: int) -> None:
    """Held in memory: the chunks of rows, int8's scales; on the disk: the file."""
    store: Any = STORES[name](d, steps=T)
    for row in random_rows(T, d):
        store.append(row)
    said = STORES[store.name].room(d, T)
    if hasattr(store, "_file"):
        assert 0 <= os.fstat(store._file.fileno()).st_size - said.disk < mmap.ALLOCATIONGRANULARITY
        assert said.memory == 0
    else:
        rows = [store, *([store._scales] if hasattr(store, "_scales") else [])]
        held = sum(chunk.nbytes for part in rows for chunk in part._chunks)
        assert said.memory == pytest.approx(held, abs=4 * T)  # a last group of int8 may be short, its scale is whole
        assert said.disk == 0


def test_the_gram_matrix_of_a_small_dense_store_is_exact_to_float64() -> None:
    """Float32 numbers multiply exactly in float64; only the order of the sum is left."""
    rows = random_rows(20, 3000)
    exact = rows.double() @ rows.double().T
    assert float((filled("dense", rows).gram() - exact).abs().max()) < 1e-10


@every
def test_float64_displacements_are_answered_in_float64_and_left_as_they_are(name: str) -> None:
    """Exact stores keep all of their digits; every store keeps steps that are tiny beside float32's weights."""
    rows = random_rows(40, 30).double() * 1e-12 + 1e-13 / 3
    store = filled(name, rows)
    coefficients = torch.linspace(-1, 2, 40, dtype=torch.float64)
    tolerance = 1e-14 if name in {"dense", "disk", "auto"} else TOLERANCES[name]
    for _ in range(2):  # the first answer changes nothing
        combined = store.combine(coefficients)
        assert combined.dtype == torch.float64
        error = float((combined - coefficients @ rows).norm())
        assert error <= tolerance * float(coefficients.abs() @ rows.norm(dim=1))


# What a store may cost in fidelity and leave behind

# Kept steps in common and cosine of the update, at least, on steps like those of training.
BOUNDS = {"int8": (0.98, 0.9999)}


def steps_like_training(T: int = 60, d: int = 20_000) -> Tensor:
    """A direction that fades, under noise, with lengths that differ."""
    generator = torch.Generator().manual_seed(1)
    fading = torch.linspace(1.0, -0.4, T) + 0.3 * torch.randn(T, generator=generator)
    lengths = torch.exp(0.5 * torch.randn(T, generator=generator))
    noise = torch.randn(T, d, generator=generator)
    return (noise + fading[:, None] * torch.randn(d, generator=generator)) * (1e-3 * lengths[:, None])


@every
@pytest.mark.parametrize("known", [True, False])
def test_ecgr_on_any_store_is_ecgr_on_dense_within_its_bounds(name: str, known: bool) -> None:
    rows = steps_like_training()
    steps = len(rows) if known else None
    truth, store = filled("dense", rows, steps), filled(name, rows, steps)
    exact, found = (ECGR()(ecgr.Geometry(gram=s.gram())) for s in (truth, store))
    updates = [s.combine(r.coefficients).double() for s, r in ((truth, exact), (store, found))]
    same, direction = BOUNDS.get(name, (1.0, 1.0 - 1e-12))
    assert len({*found.kept} & {*exact.kept}) >= same * len(exact.kept)
    assert float(torch.cosine_similarity(updates[0], updates[1], dim=0)) >= direction


@pytest.mark.parametrize("steps", [None, 3, 50, 70, 100])
def test_disk_answers_like_dense_to_the_bit_also_with_a_wrong_number_of_steps(steps: int | None) -> None:
    rows = steps_like_training(T=70, d=9000)
    dense, disk = filled("dense", rows, steps), filled("disk", rows, steps)
    weights = torch.linspace(-1, 2, len(rows), dtype=torch.float64)
    assert same_bits(dense.gram(), disk.gram())
    assert same_bits(dense.combine(weights), disk.combine(weights))


@pytest.mark.parametrize("name", sorted(name for name, kind in STORES.items() if kind.exact))
def test_a_combination_is_the_sum_step_by_step_in_float64(name: str) -> None:
    """Rounded once: the bits of a combination depend on nothing but the steps and their order."""
    rows = steps_like_training(T=37, d=8200)
    weights = torch.linspace(-1, 2, len(rows), dtype=torch.float64)
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for weight, row in zip(weights.tolist(), rows, strict=True):
        total = total + weight * row.double()
    assert same_bits(filled(name, rows).combine(weights), total.float())


@every
def test_a_row_is_written_in_place_or_through_append_with_the_same_outcome(name: str) -> None:
    rows = steps_like_training(T=40, d=700)
    appended, written = filled(name, rows), STORES[name](700)
    for row in rows:
        place = written.new_row(row.device)
        if place is None:
            written.append(row)
        else:
            place.copy_(row)
    assert len(written) == 40
    assert same_bits(appended.gram(), written.gram())


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_does_not_disappear(name: str, value: float) -> None:
    rows = torch.ones(3, 600)
    rows[1, 400] = value
    assert not torch.isfinite(filled(name, rows).gram()[1, 1])


# Room


def test_auto_takes_dense_then_disk_then_refuses_and_names_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.4 MB of steps and 0.08 MB of inner products, for each of two processes."""
    size, steps = 1000, 100
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": 10_000_000)
    assert pick(size, steps).name == "dense"
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": 1_000_000)
    assert pick(size, steps).name == "disk"
    monkeypatch.setattr(stores, "free_disk", lambda: 100_000)
    with pytest.raises(
        ConfigError,
        match=r"100 steps of 1,000 numbers \(0.4 MB\) and their 100 x 100 inner products \(80.0 kB\) fit neither in"
        r" memory \(1.0 MB free\) nor on the disk",
    ):
        pick(size, steps)


def test_the_inner_products_of_a_long_round_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 steps of 1,000 numbers are 80 MB, their inner products 3.2 GB; 1.1 times that is asked for."""
    size, steps = 1000, 20_000
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(stores, "free_disk", lambda: 10**12)
    free = {"bytes": 2 * 3_700_000_000}
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": free["bytes"])
    assert pick(size, steps).name == "dense"
    check_room("dense", size, steps, stores=2)
    free["bytes"] = 3_550_000_000
    assert pick(size, steps).name == "disk"
    with pytest.raises(
        ConfigError,
        match=r"^run.store: 'dense' would hold 20,000 steps of 1,000 numbers \(80.0 MB\) and their 20,000 x 20,000"
        r" inner products \(3.2 GB\) in memory \(3.5 GB free\); what fits: int8, disk$",
    ):
        check_room("dense", size, steps, stores=1)
    free["bytes"] = 3_000_000_000
    for name in STORES:
        with pytest.raises(
            ConfigError, match=r"what fits: nothing; take fewer steps in a round \(federation.batch_size"
        ):
            check_room(name, size, steps, stores=1)


def test_auto_says_what_it_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": 2_000_000)  # of 256 steps 2.3 MB are asked for
    model = nn.Linear(6, 16)  # 112 numbers
    optimizer = SGD(model.parameters(), lr=0.1)
    with ecgr.Recorder(model, optimizer, store="auto") as steps:
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    assert steps.store == "disk"
    task = four_clients(run={"store": "auto"}, federation={"batch_size": 1, "local_epochs": 4})
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": 30_000)  # 40 steps, with inner products of 12.8 kB
    assert train_client(round_jobs(task, start(task))[0], Workspace(task))[0].store == "disk"


@pytest.mark.parametrize(
    ("store", "fault"), [("dense", ConfigError), ("int8", ConfigError), ("disk", EnvironmentFault)]
)
def test_a_store_too_large_is_refused_before_anything_is_written(
    store: str, fault: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "free_memory", lambda device="cpu": 1_000_000)
    monkeypatch.setattr(stores, "free_disk", lambda: 1_000_000)
    experiment = ecgr.load("quickstart", {"run.store": store, "regulator.name": "ecgr", "federation.rounds": 1})
    with pytest.raises(fault, match=r"^run.store: .*61,706 numbers.*what fits: nothing; take fewer steps"):
        ecgr.run(experiment, tmp_path / "run", workers=2)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_one_clear_line_and_not_a_killed_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, start: int, length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    store = STORES["disk"](1000, steps=10)
    with pytest.raises(EnvironmentFault, match=r"No space left on device.*TMPDIR.*int8"):
        store.append(torch.ones(1000))
    assert len(store) == 0


def test_the_disk_does_without_what_macos_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = steps_like_training(T=70, d=900)
    before = filled("disk", rows).gram()
    monkeypatch.delattr(os, "posix_fallocate")
    assert same_bits(filled("disk", rows).gram(), before)


def test_no_temporary_directory_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    with pytest.raises(EnvironmentFault, match="TMPDIR"):
        STORES["disk"](3)


@pytest.mark.slow
def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "import sys, time, torch\n"
        "from ecgr.core.stores import STORES\n"
        "store = STORES['disk'](100_000)\n"
        "for _ in range(40): store.append(torch.ones(100_000))\n"
        "store.gram(); print(len(store), flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "40\n"
        files = list(tmp_path.iterdir())
        process.send_signal(signal.SIGKILL)
    assert files == []
    assert list(tmp_path.iterdir()) == []


def test_a_disk_set_gives_back_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        filled("disk", torch.ones(3, 10)).gram()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []
