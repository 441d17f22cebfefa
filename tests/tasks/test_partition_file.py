"""Partitions as files: what is saved is what is loaded, and what is wrong is said with its place."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import ConfigError
from ecgr.tasks.partition import IID, Partition, load_partition, save_partition


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


def test_the_file_is_plain_json(tmp_path: Path) -> None:
    save_partition(tmp_path / "p.json", Partition.of([[3, 0], [1]]), samples=4)
    assert json.loads((tmp_path / "p.json").read_text()) == {"clients": [[0, 3], [1]], "samples": 4}
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"]


def test_how_many_samples_there_are_has_to_be_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leaves samples out"):
        save_partition(tmp_path / "p.json", Partition.of([[3, 0], [1]]))
    assert list(tmp_path.iterdir()) == []


BAD = {
    "not json": ("{", "is not JSON"),
    "not text": ("\x00\xff", "is not UTF-8"),
    "too deep": ('{"clients":' + "[" * 100_000, "is not JSON"),
    "no samples": ('{"clients": [[0]]}', "must hold"),
    "more keys": ('{"clients": [[0]], "samples": 4, "seed": 1}', "must hold"),
    "client not a list": ('{"clients": [[0], 1], "samples": 4}', "client 1 is not a list"),
    "other samples": ('{"clients": [[0]], "samples": 5}', "is for 5 samples, the data set has 4"),
    "samples true": ('{"clients": [[0]], "samples": true}', "is for True samples"),
    "out of range": ('{"clients": [[0], [4]], "samples": 4}', "client 1 has '4', indices go from 0 to 3"),
    "negative": ('{"clients": [[0], [-1]], "samples": 4}', "client 1 has '-1'"),
    "nan": ('{"clients": [[NaN]], "samples": 4}', "client 0 has 'nan'"),
    "true": ('{"clients": [[true]], "samples": 4}', "client 0 has 'True'"),
    "text": ('{"clients": [["0"]], "samples": 4}', "client 0 has '0'"),
    "twice with one": ('{"clients": [[1, 1]], "samples": 4}', "client 0 has sample 1, which client 0 has too"),
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
