"""Every entry of STORES answers like dense float64 mathematics on what was appended, and says what room it takes."""

import mmap
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ecgr.core import stores
from ecgr.core.stores import STORES, DenseStore
from support.quick import examples

every = pytest.mark.parametrize("name", sorted(STORES))

# How far answers may be from exact arithmetic, relative to the steps' lengths: inner products, and combinations. A
# store that is not named here is held to the exact ones; a lossy one declares itself.
EXACT = (1e-6, 1e-6)
TOLERANCES = {"int8": (2e-2, 2e-2)}


def empty(name: str, rows: Tensor) -> DenseStore:
    return STORES[name](rows.shape[1])


def filled(name: str, rows: Tensor) -> DenseStore:
    store = empty(name, rows)
    for row in rows:
        store.append(row)
    return store


def random_rows(T: int, d: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((T, d))).float()


def check_against_dense(name: str, rows: Tensor) -> None:
    store, G = filled(name, rows), rows.double()
    T, d = rows.shape
    products, combinations = TOLERANCES.get(name, EXACT)
    norms = G.norm(dim=1)
    gram = store.gram()
    assert gram.shape == (T, T)
    assert gram.dtype == torch.float64
    assert torch.equal(gram, gram.T)
    assert ((gram - G @ G.T).abs() <= products * norms[:, None] * norms[None]).all()
    coefficients = torch.linspace(-1, 2, T, dtype=torch.float64)
    combined = store.combine(coefficients)
    assert combined.shape == (d,)
    assert combined.dtype == torch.float32
    error = (combined.double() - coefficients @ G).norm()
    assert float(error) <= combinations * float(coefficients.abs() @ norms)


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
def test_asking_changes_nothing_and_growth_goes_on_afterwards(name: str) -> None:
    rows = random_rows(40, 5)
    store = empty(name, rows)
    for i, row in enumerate(rows, start=1):
        store.append(row)
        if i in {1, 31, 32, 33}:
            assert len(store) == i
            assert torch.equal(store.gram(), store.gram())
    assert torch.equal(store.gram(), filled(name, rows).gram())


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


def test_a_dense_store_never_moves_what_it_holds() -> None:
    store = stores.DenseStore(3)
    store.append(torch.ones(3))
    address = store._chunks[0].data_ptr()
    for _ in range(3 * stores.ROWS_PER_CHUNK):
        store.append(torch.ones(3))
    assert store._chunks[0].data_ptr() == address


@every
def test_float64_displacements_are_answered_in_float64_and_left_as_they_are(name: str) -> None:
    """Exact stores keep all of their digits; every store keeps steps that are tiny beside float32's weights."""
    rows = random_rows(40, 30).double() * 1e-12 + 1e-13 / 3
    store = filled(name, rows)
    coefficients = torch.linspace(-1, 2, 40, dtype=torch.float64)
    tolerance = 1e-14 if name in {"dense", "disk", "auto"} else TOLERANCES[name][1]
    for _ in range(2):  # the first answer changes nothing
        combined = store.combine(coefficients)
        assert combined.dtype == torch.float64
        error = float((combined - coefficients @ rows).norm())
        assert error <= tolerance * float(coefficients.abs() @ rows.norm(dim=1))
