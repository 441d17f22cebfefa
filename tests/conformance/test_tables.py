"""The smaller tables: data sets that are embedded, partitioners, optimisers, schedules; and what all tables share."""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from hashlib import sha256
from inspect import getdoc
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.cli.listing import TABLES
from ecgr.config.optimizers import OPTIMIZERS, SCHEDULES
from ecgr.config.registry import SECTIONS, RunSettings, parameters_of
from ecgr.core.stores import STORES
from ecgr.tasks.data import DATASETS
from ecgr.tasks.data.dataset import Labels
from ecgr.tasks.metrics import METRICS
from ecgr.tasks.partition import PARTITIONERS, Partition, partition_samples
from ecgr.tasks.samples import Samples

# Entries that cannot be made without parameters get theirs here; an entry that is missing fails and says so.
NEEDED: Mapping[str, Mapping[str, Any]] = {}


def made(table: Mapping[str, Callable[..., Any]], name: str) -> Any:
    return table[name](**NEEDED.get(name, {}))


COMPONENTS = [
    (title, name) for title, table in TABLES.items() if title not in {"models", "datasets"} for name in sorted(table)
]


# All tables


@pytest.mark.parametrize(("title", "name"), COMPONENTS)
def test_a_component_is_frozen_hashable_comparable_and_survives_a_pipe(title: str, name: str) -> None:
    part = made(TABLES[title], name)
    copy = pickle.loads(pickle.dumps(part))
    assert copy == part
    assert hash(copy) == hash(part)
    for field in parameters_of(TABLES[title][name]):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(part, field, getattr(part, field))


@pytest.mark.parametrize(("title", "name"), [(t, n) for t, table in TABLES.items() for n in sorted(table)])
def test_an_entry_says_what_it_is_in_one_line(title: str, name: str) -> None:
    first = (getdoc(TABLES[title][name]) or "").splitlines()[0]
    assert 10 < len(first) <= 160
    assert first.endswith((".", ":"))


@pytest.mark.parametrize(("title", "name"), [(t, n) for t, table in TABLES.items() for n in sorted(table)])
def test_names_can_be_typed_in_a_shell(title: str, name: str) -> None:
    assert name.replace("_", "").replace("-", "").isalnum()
    assert name == name.lower()


def test_every_table_can_be_chosen_from_in_a_config_and_is_listed() -> None:
    in_config = [section.table for section in SECTIONS.values() if section.table is not None]
    assert all(any(table is listed for listed in TABLES.values()) for table in in_config)
    assert all(any(table is chosen for chosen in (*in_config, METRICS)) for table in TABLES.values())


def test_every_store_can_be_chosen_in_a_config() -> None:
    for store in STORES:
        assert RunSettings(store=store).store == store


# Data


def test_digits_are_the_embedded_ones_with_a_fixed_split() -> None:
    """1,797 images; every fifth is a test image: 359, and 1,438 to train on."""
    first, second = DATASETS["digits"]().load(), DATASETS["digits"]().load()
    assert first.train.inputs.shape == (1438, 1, 28, 28)
    assert first.test.inputs.shape == (359, 1, 28, 28)
    assert first.train.inputs.dtype == np.uint8
    assert first.train.targets.dtype == np.int64
    assert set(np.unique(first.train.targets)) == set(np.unique(first.test.targets)) == set(range(10))
    assert np.array_equal(first.train.inputs, second.train.inputs)
    assert first.files == second.files
    assert all(len(digest) == 64 for digest in first.files.values())


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
    assert np.array_equal(data.train.targets, target[~test])
    assert np.array_equal(data.test.targets, target[test])
    digest = sha256(raw.astype(np.float64).tobytes() + target.astype(np.int64).tobytes()).hexdigest()
    assert data.files == {"sklearn-digits": digest}


def test_digits_are_normalised_by_their_own_mean_and_deviation() -> None:
    data = DATASETS["digits"]().load()
    scaled = data.train.inputs / 255
    assert float(scaled.mean()) == pytest.approx(data.mean[0], abs=2e-3)
    assert float(scaled.std()) == pytest.approx(data.std[0], abs=2e-3)


# Partitioners: what each promises is in tests/tasks/test_partition.py

every_partitioner = pytest.mark.parametrize("name", sorted(PARTITIONERS))


def labels_of(samples: int, classes: int, seed: int) -> Labels:
    return np.random.default_rng(seed).integers(0, classes, size=samples)


def dealt_by(name: str, labels: Labels, clients: int, rng: np.random.Generator) -> Partition:
    """The partition of labels whose samples also carry a group each, for every entry."""
    groups = np.array([f"tile {i}" for i in range(len(labels))])
    split = Samples(np.zeros((len(labels), 1, 1, 1), dtype=np.uint8), labels, groups)
    return partition_samples(made(PARTITIONERS, name), split, clients, rng)


@every_partitioner
def test_partitioning_does_not_touch_the_global_generators(name: str) -> None:
    state = np.random.get_state(legacy=False)  # noqa: NPY002 - that nobody uses it is the point
    dealt_by(name, labels_of(100, 5, 0), 4, np.random.default_rng(0))
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


def test_sgd_is_torchs_with_its_momentum_and_adamw_has_none_that_fednova_could_use() -> None:
    sgd = OPTIMIZERS["sgd"](lr=0.1, momentum=0.7, weight_decay=0.01)
    built = sgd.build([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    assert isinstance(built, torch.optim.SGD)
    assert (built.defaults["momentum"], built.defaults["weight_decay"]) == (0.7, 0.01)
    assert sgd.effective_momentum == 0.7
    assert OPTIMIZERS["adamw"]().effective_momentum == 0.0


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("lr", [0.0, -0.1, float("nan"), float("inf"), "0.1", True])
def test_an_impossible_learning_rate_is_refused(name: str, lr: Any) -> None:
    with pytest.raises(ValueError, match="lr"):
        OPTIMIZERS[name](lr=lr)


# Schedules


@pytest.mark.parametrize("name", sorted(SCHEDULES))
@given(rounds=st.integers(1, 300))
def test_a_schedule_starts_at_one_and_stays_positive_and_finite(name: str, rounds: int) -> None:
    schedule = made(SCHEDULES, name)
    factors = [schedule.factor_at(t, rounds) for t in range(rounds)]
    assert factors[0] == 1.0
    assert all(isinstance(f, float) and 0 < f <= 1 for f in factors)
    assert factors == [schedule.factor_at(t, rounds) for t in range(rounds)]


def test_the_papers_schedule_is_step_with_its_first_drop_at_round_nine() -> None:
    """The published code: lr * 0.5^floor((t + 1) / 10) for t = 0, 1, …; the text: halved every 10 rounds."""
    code, text = SCHEDULES["step"](every=10, factor=0.5, first=9), SCHEDULES["step"](every=10, factor=0.5)
    for t in range(100):
        assert code.factor_at(t, 100) == 0.5 ** ((t + 1) // 10)
        assert text.factor_at(t, 100) == 0.5 ** (t // 10)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"every": 2, "factor": 0.1}, [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]),
        ({"every": 2, "factor": 0.1, "first": 1}, [1.0, 0.1, 0.1, 0.01, 0.01, 0.001]),
        ({"every": 2, "factor": 0.1, "first": 5}, [1.0, 1.0, 1.0, 1.0, 1.0, 0.1]),
        ({"every": 1, "factor": 2.0}, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
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


def test_a_growing_schedule_has_an_answer_for_the_last_of_many_rounds() -> None:
    """Ten to the 999th is no float: infinity, and not a bare OverflowError."""
    assert SCHEDULES["step"](every=1, factor=10.0).factor_at(999, 1000) == float("inf")
