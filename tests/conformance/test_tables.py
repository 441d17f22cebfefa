"""The smaller tables: data sets that are embedded, partitioners, optimisers, schedules; and what all tables share."""

import pickle
from dataclasses import FrozenInstanceError
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.cli.listing import TABLES
from ecgr.config.optimizers import OPTIMIZERS, SCHEDULES
from ecgr.config.registry import SECTIONS, parameters_of
from ecgr.tasks.data import DATASETS
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.partition import PARTITIONERS, partition_samples
from ecgr.tasks.samples import Samples

COMPONENTS = [
    (title, name) for title, table in TABLES.items() if title not in {"models", "datasets"} for name in sorted(table)
]


# All tables


@pytest.mark.parametrize(("title", "name"), COMPONENTS)
def test_a_component_is_frozen_hashable_comparable_and_survives_a_pipe(title: str, name: str) -> None:
    part = TABLES[title][name]()
    copy = pickle.loads(pickle.dumps(part))
    assert copy == part
    assert hash(copy) == hash(part)
    for field in parameters_of(TABLES[title][name]):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(part, field, getattr(part, field))


@pytest.mark.parametrize(("title", "name"), [(t, n) for t, table in TABLES.items() for n in sorted(table)])
def test_names_can_be_typed_in_a_shell(title: str, name: str) -> None:
    assert name.replace("_", "").replace("-", "").isalnum()
    assert name == name.lower()


def test_every_table_can_be_chosen_from_in_a_config_and_is_listed() -> None:
    in_config = [section.table for section in SECTIONS.values() if section.table is not None]
    assert all(any(table is listed for listed in TABLES.values()) for table in in_config)
    assert all(any(table is chosen for chosen in (*in_config, METRICS)) for table in TABLES.values())


# Data


def test_digits_are_those_of_scikit_learn_enlarged_to_the_same_bytes() -> None:
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    raw, target = load_digits(return_X_y=True)
    large = zoom(raw.reshape(-1, 8, 8), (1, 3.5, 3.5), order=1, grid_mode=True, mode="nearest")
    images = np.rint(large * (255 / 16)).clip(0, 255).astype(np.uint8)[:, None]
    data = DATASETS["digits"]().load()
    test = np.arange(1797) % 5 == 4
    assert data.train.inputs.tobytes() == images[~test].tobytes()
    assert data.test.inputs.tobytes() == images[test].tobytes()
    assert (len(data.train), len(data.test)) == (1438, 359)
    assert np.array_equal(data.train.targets, target[~test])
    assert np.array_equal(data.test.targets, target[test])
    digest = sha256(raw.astype(np.float64).tobytes() + target.astype(np.int64).tobytes()).hexdigest()
    assert data.files == {"sklearn-digits": digest}


# Partitioners: what each promises is in tests/tasks/test_partition.py


@pytest.mark.parametrize("name", sorted(PARTITIONERS))
def test_partitioning_does_not_touch_the_global_generators(name: str) -> None:
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - that nobody uses it is the point
    labels, groups = np.arange(100) % 5, np.array([f"tile {i}" for i in range(100)])
    samples = Samples(np.zeros((100, 1, 1, 1), dtype=np.uint8), labels, groups)
    partition_samples(PARTITIONERS[name](), samples, 4, np.random.default_rng(0))
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert repr(state) == repr(after)


# Optimisers


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_optimiser_trains_at_the_learning_rate_it_is_given(name: str) -> None:
    factory = OPTIMIZERS[name](lr=0.5)
    weight = torch.nn.Parameter(torch.tensor([3.0]))
    optimizer = factory.build([weight], lr=0.125)
    assert factory.lr == 0.5
    assert [group["lr"] for group in optimizer.param_groups] == [0.125]
    for _ in range(40):
        optimizer.zero_grad()
        (weight**2).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert abs(float(weight.detach())) < 3.0
    assert 0 <= factory.effective_momentum < 1


# Schedules


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@given(rounds=st.integers(1, 300))
def test_a_schedule_starts_at_one_and_stays_positive_and_finite(name: str, rounds: int) -> None:
    schedule = SCHEDULES[name]()
    factors = [schedule.factor_at(t, rounds) for t in range(rounds)]
    assert factors[0] == 1.0
    assert all(isinstance(f, float) and 0 < f <= 1 for f in factors)
    assert factors == [schedule.factor_at(t, rounds) for t in range(rounds)]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"every": 2, "factor": 0.1}, [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]),
        ({"every": 2, "factor": 0.1, "first": 1}, [1.0, 0.1, 0.1, 0.01, 0.01, 0.001]),
        ({"every": 2, "factor": 0.1, "first": 5}, [1.0, 1.0, 1.0, 1.0, 1.0, 0.1]),
        ({"every": 1, "factor": 1e200}, [1.0, 1e200, *[float("inf")] * 4]),  # and no OverflowError
    ],
)
def test_step_by_hand(parameters: dict[str, Any], expected: list[float]) -> None:
    schedule = SCHEDULES["step"](**parameters)
    assert [schedule.factor_at(t, 6) for t in range(6)] == pytest.approx(expected)


def test_cosine_by_hand() -> None:
    """(1 + cos(pi t / R)) / 2 at t = 0, R/3, R/2, 2R/3: 1, 3/4, 1/2, 1/4; a floor of 0.2 lifts to 0.2 + 0.8 of it."""
    plain, lifted = SCHEDULES["cosine"](), SCHEDULES["cosine"](floor=0.2)
    for t, factor in [(0, 1.0), (2, 0.75), (3, 0.5), (4, 0.25)]:
        assert plain.factor_at(t, 6) == pytest.approx(factor)
        assert lifted.factor_at(t, 6) == pytest.approx(0.2 + 0.8 * factor)
