"""Every way to partition: each sample once, the same again for a generator, its own promise kept; also as files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ecgr.config.experiment import Experiment, load
from ecgr.config.partition import chosen_share, natural_note, partition_of
from ecgr.errors import ConfigError
from ecgr.tasks.data import Dataset
from ecgr.tasks.partition import (
    IID,
    PARTITIONERS,
    Dirichlet,
    Groups,
    Partition,
    Partitioner,
    Shards,
    load_partition,
    partition_samples,
    save_partition,
    top_up,
)
from ecgr.tasks.samples import Samples

LABELLED = {name: make() for name, make in PARTITIONERS.items() if name != "groups"}
labels_strategy = arrays(np.int64, st.integers(30, 120), elements=st.integers(0, 4))


def same(first: Partition, second: Partition) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("partitioner", LABELLED.values(), ids=LABELLED.keys())
@given(labels=labels_strategy, clients=st.integers(1, 15), seed=st.integers(0, 2**32))
def test_every_sample_is_dealt_exactly_once(
    partitioner: Partitioner, labels: np.ndarray, clients: int, seed: int
) -> None:
    partition = partitioner(labels, clients, np.random.default_rng(seed))
    assert len(partition) == clients
    np.testing.assert_array_equal(np.sort(np.concatenate(list(partition))), np.arange(len(labels)))
    assert all((np.diff(indices) > 0).all() for indices in partition)
    assert same(partition, partitioner(labels, clients, np.random.default_rng(seed)))
    if isinstance(partitioner, IID):
        assert max(partition.sizes()) - min(partition.sizes()) <= 1


def test_dirichlet_can_drop_what_rounding_leaves_over() -> None:
    labels = np.repeat(np.arange(10), 33)
    dropped = Dirichlet(alpha=1.0, remainder="drop")(labels, 7, np.random.default_rng(0))
    dealt = Dirichlet(alpha=1.0)(labels, 7, np.random.default_rng(0))
    assert 330 - 10 * 6 <= sum(dropped.sizes()) < 330 == sum(dealt.sizes())


def test_a_smaller_alpha_makes_clients_less_alike() -> None:
    labels = np.repeat(np.arange(10), 100)

    def largest_class_share(alpha: float) -> float:
        counts = Dirichlet(alpha=alpha)(labels, 5, np.random.default_rng(0)).histogram(labels, 10)
        return float(np.mean(counts.max(axis=1) / counts.sum(axis=1)))

    assert largest_class_share(0.05) > 1.5 * largest_class_share(100.0)


@given(k=st.integers(1, 4), clients=st.integers(1, 10), seed=st.integers(0, 999))
def test_shards_are_equal_and_of_few_classes(k: int, clients: int, seed: int) -> None:
    """Where shards fit into classes exactly, nobody has more than k classes, and everybody as much as the others."""
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(clients * k), 12))
    partition = Shards(classes_per_client=k)(labels, clients, np.random.default_rng(seed))
    assert partition.sizes() == [12 * k] * clients
    assert ((partition.histogram(labels, clients * k) > 0).sum(axis=1) == k).all()


names_strategy = st.lists(st.sampled_from("abcdefgh"), min_size=10, max_size=60)


@given(names=names_strategy, clients=st.integers(1, 8), seed=st.integers(0, 999))
def test_groups_are_never_divided(names: list[str], clients: int, seed: int) -> None:
    groups = np.array(names)
    split = Samples(np.zeros((len(names), 1, 2, 2), np.uint8), np.zeros(len(names), np.int64), groups)
    if len(set(names)) < clients:
        with pytest.raises(ConfigError, match=f"{clients} clients cannot share {len(set(names))} groups"):
            partition_samples(Groups(), split, clients, np.random.default_rng(seed))
        return
    partition = partition_samples(Groups(), split, clients, np.random.default_rng(seed))
    owners = [set(groups[indices].tolist()) for indices in partition]
    assert sum(map(len, owners)) == len(set(names))
    assert all(owners)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(partition))), np.arange(len(names)))
    assert same(partition, partition_samples(Groups(), split, clients, np.random.default_rng(seed)))


def test_a_file_comes_before_the_groups_of_the_data_set(tmp_path: Path) -> None:
    samples = Samples(np.zeros((4, 2)), np.zeros(4, np.int64), np.array(["a", "a", "b", "b"]))
    for name, content in (
        ("sites.json", json.dumps(["x", "y", "x", "y"])),
        ("numbers.json", json.dumps([7, 8, 7, 8])),
        ("sites.csv", "sample,group\n0,x\n1,y\n2,x\n3,y\n"),
    ):
        (tmp_path / name).write_text(content)
        partitioner, rng = Groups(groups=str(tmp_path / name)), np.random.default_rng(0)
        for partition in (partition_samples(partitioner, samples, 2, rng), partitioner(samples.targets, 2, rng)):
            assert [indices.tolist() for indices in partition] == [[0, 2], [1, 3]]


BAD_FILES: dict[str, tuple[str | bytes | None, str]] = {
    "short.json": ("[1, 2, 3]", "has 3 groups, there are 4 training samples"),
    "broken.json": ("[1, 2", "is not JSON"),
    "dict.json": ('{"a": 1}', "must hold a list"),
    "nameless.json": ('["a", "b", "", "c"]', "at index 2"),
    "column.csv": ("site\na\nb\nc\nd\n", "has no column 'group'"),
    "hole.csv": ("sample,group\n0,a\n1,\n2,b\n3,c\n", "has no name or whole number in line 3"),
    "binary.csv": (b"\xff\xfe", "is not UTF-8"),
    "missing.csv": (None, "cannot be read"),
}


@pytest.mark.parametrize(("name", "content", "says"), [(name, *rest) for name, rest in BAD_FILES.items()])
def test_a_bad_group_file_is_a_config_error(tmp_path: Path, name: str, content: Any, says: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=says) as caught:
        Groups(groups=str(tmp_path / name))(np.zeros(4, np.int64), 2, np.random.default_rng(0))
    assert name in str(caught.value)


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=10), minimum=st.integers(0, 12), seed=st.integers(0, 99))
def test_topping_up_leaves_nobody_poor_and_loses_nothing(sizes: list[int], minimum: int, seed: int) -> None:
    starts = np.cumsum([0, *sizes])
    partition = Partition.of([range(start, start + size) for start, size in zip(starts, sizes, strict=False)])
    if minimum * len(sizes) > sum(sizes):
        with pytest.raises(ConfigError, match=r"partition\.min_batches"):
            top_up(partition, minimum, np.random.default_rng(seed))
        return
    fair = top_up(partition, minimum, np.random.default_rng(seed))
    assert min(fair.sizes()) >= minimum
    np.testing.assert_array_equal(np.sort(np.concatenate(list(fair))), np.arange(sum(sizes)))


def test_what_cannot_be_partitioned_is_refused() -> None:
    with pytest.raises(ConfigError, match="15 shards need as many samples, there are 14"):
        Shards(classes_per_client=3)(np.zeros(14, dtype=np.int64), 5, np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"partition\.groups: this data set does not say"):
        Groups()(np.zeros(4, np.int64), 2, np.random.default_rng(0))
    with pytest.raises(ConfigError, match="more than one client"):
        Partition.of([[0, 1], [1]])


@given(samples=st.integers(1, 200), clients=st.integers(1, 12), seed=st.integers(0, 99))
def test_what_is_saved_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, samples: int, clients: int, seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "partition.json"
    partition = IID()(np.zeros(samples, np.int64), clients, np.random.default_rng(seed))
    save_partition(path, partition)
    loaded = load_partition(path, samples)
    assert loaded.sizes() == partition.sizes()
    for saved, read in zip(partition, loaded, strict=True):
        np.testing.assert_array_equal(saved, read)
        assert read.dtype == np.int64


def test_the_file_is_plain_json_and_says_how_many_samples_there_are(tmp_path: Path) -> None:
    partition = Partition.of([[3, 0], [1]])
    with pytest.raises(ConfigError, match="leaves samples out"):
        save_partition(tmp_path / "p.json", partition)
    assert list(tmp_path.iterdir()) == []
    save_partition(tmp_path / "p.json", partition, samples=4)
    assert json.loads((tmp_path / "p.json").read_text()) == {"clients": [[0, 3], [1]], "samples": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


BAD = {
    "not json": ("{", "is not JSON"),
    "not text": ("\x00\xff", "is not UTF-8"),
    "too deep": ('{"clients":' + "[" * 100_000, "is not JSON"),
    "more keys": ('{"clients": [[0]], "samples": 4, "seed": 1}', "must hold"),
    "client not a list": ('{"clients": [[0], 1], "samples": 4}', "client 1 is not a list"),
    "other samples": ('{"clients": [[0]], "samples": 5}', "is for 5 samples, the data set has 4"),
    "samples true": ('{"clients": [[0]], "samples": true}', "is for True samples"),
    "out of range": ('{"clients": [[0], [4]], "samples": 4}', "client 1 has '4', indices go from 0 to 3"),
    "true": ('{"clients": [[true]], "samples": 4}', "client 0 has 'True'"),
    "twice with two": ('{"clients": [[0, 1], [2, 1]], "samples": 4}', "client 1 has sample 1, which client 0 has too"),
    "nobody": ('{"clients": [], "samples": 4}', "gives no client a sample"),
}


@pytest.mark.parametrize(("content", "says"), BAD.values(), ids=BAD.keys())
def test_bad_content_is_a_config_error_that_says_where(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match=says) as caught:
        load_partition(path, 4)
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith(f"partition.file: {path}")
    assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_partition(path, 4)


SITES = np.repeat(["a", "b", "c"], [40, 3, 20])


def site_dataset() -> Dataset:
    samples = Samples(np.zeros((63, 2), np.float32), np.arange(63) % 2, SITES)
    return Dataset(samples, samples, shape={"features": 2, "classes": 2}, classes=("0", "1"))


def dealt(**partition: Any) -> Partition:
    settings = {"partition": {"name": "groups", "min_batches": 1, **partition}, "federation": {"batch_size": 4}}
    return partition_of(Experiment.from_dict(settings), site_dataset())


def test_a_small_natural_client_is_refused_by_name_or_left_out_and_never_topped_up() -> None:
    with pytest.raises(ConfigError, match=r"client 1 \(b\) has 3 training samples, 1 of 3 clients have fewer than 4"):
        dealt()
    left = dealt(empty="skip")
    assert left.sizes() == [40, 0, 20]
    assert set(SITES[left.clients[2]]) == {"c"}
    for partition in (dealt(min_batches=0), dealt(clients=3, min_batches=0)):
        assert [SITES[part].tolist() for part in partition] == [["a"] * 40, ["b"] * 3, ["c"] * 20]


def test_clients_without_a_number_are_all_there_are() -> None:
    assert len(dealt(min_batches=0)) == 3
    assert Experiment.from_dict({"partition": {"name": "groups"}}).partition.clients is None
    assert Experiment.from_dict({"partition": {"name": "iid"}}).partition.clients == 10
    with pytest.raises(ConfigError, match=r"leave partition\.clients out for one client a group"):
        dealt(clients=4)
    with pytest.raises(ConfigError, match=r"partition\.clients: missing"):
        partition_samples(IID(), site_dataset().train, None, np.random.default_rng(0))


def test_whoever_mixes_natural_clients_is_told() -> None:
    def note(train: list[str] | None, test: list[str] | None, **partition: Any) -> str | None:
        first, second = (Samples(np.zeros((2, 1), np.float32), np.arange(2), groups) for groups in (train, test))
        dataset = Dataset(first, second, {"features": 1, "classes": 2})
        return natural_note(Experiment.from_dict({"partition": partition}), dataset)

    natural = (["north", "south"], ["south", "north"])
    assert note(*natural, name="iid") == (
        "the data have 2 natural clients, and partition.name = 'iid' mixes their samples;"
        ' partition.name = "groups" keeps them'
    )
    assert note(*natural, name="groups") is None
    assert note(*natural, name="iid", file="who.json") is None
    assert note(["tile 1", "tile 2"], ["tile 3", "tile 4"], name="iid") is None
    assert note(None, None, name="iid") is None


def test_what_would_fit_is_said_where_samples_are_too_few() -> None:
    experiment = load("quickstart", {"partition.clients": 100, "partition.name": "iid"})
    with pytest.raises(ConfigError) as refusal:
        partition_of(experiment, experiment.source.load())
    said = str(refusal.value)
    assert "this fits: partition.min_batches = 0, or federation.batch_size = 7, or partition.clients = 44" in said
    for fitting in ({"federation.batch_size": 7}, {"partition.clients": 44}):
        fits = experiment.replace(fitting)
        assert min(partition_of(fits, fits.source.load()).sizes()) >= 2 * fits.federation.batch_size


def held(settings: dict[str, Any]) -> tuple[Partition, int]:
    """The partition of what is left of the training samples when a fifth is held out, and how many that are."""
    experiment = load("quickstart", {"data.validation": 0.2, **settings})
    dataset = chosen_share(experiment, experiment.source.load())
    return partition_of(experiment, dataset), len(dataset.train)


def test_what_can_be_partitioned_can_be_when_samples_are_held_out(tmp_path: Path) -> None:
    whole = load("quickstart").source.load()
    names = [str(index % 1000) for index in range(len(whole.train))]  # most have one sample
    (tmp_path / "groups.json").write_text(json.dumps(names))
    save_partition(tmp_path / "clients.json", Partition.of([[0], range(1, 1438)]), 1438)
    for clients, settings in (
        (44, {"partition.clients": 44}),  # 32 samples each
        (1151, {"partition.clients": 1400, "partition.min_batches": 0, "partition.name": "iid"}),
        (2, {"partition.file": str(tmp_path / "clients.json"), "partition.clients": 2}),
    ):
        partition, left = held(settings)
        assert (len(partition), sum(partition.sizes())) == (clients, left)
    groups = {"partition.name": "groups", "partition.groups": str(tmp_path / "groups.json"), "partition.clients": None}
    partition, left = held(groups)
    assert sum(partition.sizes()) == left
