"""Binned maps keep the shares they stand for."""

import base64

import numpy as np
import pytest

from ecgr.report.page_data import ABSENT, LEVELS, binned_array, kept_array, step_maps
from ecgr.simulation.kept import Kept


def random_entries(rounds: int, clients: int, steps: int, seed: int = 0) -> list[Kept]:
    rng = np.random.default_rng(seed)
    return [
        Kept(r, c, steps, tuple(rng.choice(steps, size=max(1, steps // 2), replace=False).tolist()))
        for r in range(1, rounds + 1)
        for c in range(clients)
    ]


def test_large_maps_are_binned_into_the_budget() -> None:
    runs = [random_entries(rounds=150, clients=4, steps=130, seed=seed) for seed in range(2)]
    maps = step_maps(runs, budget=8000)
    assert sum(len(base64.b64decode(own["data"])) for each in maps for own in each) <= 8000
    (first, *_), _ = maps
    side = first["columns"]
    assert first["kind"] == "shares"
    shares = np.frombuffer(base64.b64decode(first["data"]), dtype=np.uint8).reshape(-1, side) / LEVELS
    exact = kept_array([entry for entry in runs[0] if entry.client == 0])
    assert shares == pytest.approx(binned_array(exact, side), abs=1 / LEVELS)
    assert first["rounds"][0] == 1
    assert first["rounds"] == sorted(set(first["rounds"]))


def test_runs_that_would_be_too_coarse_are_left_out() -> None:
    runs = [random_entries(rounds=60, clients=5, steps=200)] * 6
    assert len(step_maps(runs, budget=2 * 5 * 24 * 24)) == 2


def test_cells_without_a_step_are_absent() -> None:
    entries = [Kept(1, 0, 40, (0,)), Kept(2, 0, 20, (1,))]
    ((own,),) = step_maps([entries], budget=9)
    assert own["columns"] == 3
    assert [level == ABSENT for level in base64.b64decode(own["data"])] == 5 * [False] + [True]
    assert np.isnan(kept_array(entries)[1, 20:]).all()


def test_binning_keeps_the_mean() -> None:
    array = kept_array(random_entries(rounds=64, clients=1, steps=32))
    assert binned_array(array, 16).mean() == pytest.approx(array.mean())
