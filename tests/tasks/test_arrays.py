"""Arrays in files, and from a site's own file: what they are follows from dtypes and shapes; nothing is unpickled."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data import Arrays, Dataset, Site, verify

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
SITES = np.repeat(["north", "south"], 10)


def save(path: Path, **arrays: Any) -> str:
    path.parent.mkdir(exist_ok=True)
    named = {name.replace("__", "."): array for name, array in arrays.items()}
    save_file(named, path) if path.suffix == ".safetensors" else np.savez(path, **named)
    return str(path)


def loaded(path: Path, kind: Any = "auto", **arrays: Any) -> Dataset:
    return Arrays(root=save(path, **arrays), kind=kind).load()


KINDS: dict[str, tuple[Any, str, str, dict[str, int]]] = {
    "binary": (np.arange(20) % 2, "auto", "bce", {"outputs": 1}),
    "bool": (np.arange(20) % 2 == 0, "auto", "bce", {"outputs": 1}),
    "two-classes": (np.arange(20) % 2, "classes", "cross_entropy", {"classes": 2}),
    "classes": (np.arange(20) % 3, "auto", "cross_entropy", {"classes": 3}),
    "numbers": (X[:, 0], "auto", "mse", {"outputs": 1}),
    "several-numbers": (X[:, :2], "auto", "mse", {"outputs": 2}),
    "labels": ((X > 0).astype(np.uint8), "auto", "bce", {"outputs": 3}),
    "column": (np.arange(20)[:, None] % 3, "auto", "cross_entropy", {"classes": 3}),
}


@pytest.mark.parametrize(("targets", "kind", "loss", "shape"), KINDS.values(), ids=KINDS.keys())
def test_the_kind_of_target_follows_from_the_array(
    tmp_path: Path, targets: Any, kind: Any, loss: str, shape: dict[str, int]
) -> None:
    for suffix in (".npz", ".safetensors"):
        dataset = loaded(tmp_path / f"a{suffix}", kind, inputs=X, targets=targets)
        assert dataset.loss == loss
        assert dataset.shape == {"features": 3, **shape}
        assert (len(dataset.train), len(dataset.test)) == (16, 4)
        assert dataset.train.inputs.dtype == np.float32
        assert dataset.train.groups is None


def test_clients_may_be_names_or_numbers(tmp_path: Path) -> None:
    for clients, known in ((SITES, ["north", "south"]), (np.repeat([0, 1], 10), ["0", "1"])):
        dataset = loaded(tmp_path / "a.npz", inputs=X, targets=X[:, 0], clients=clients)
        assert sorted(set(dataset.train.groups)) == sorted(set(dataset.test.groups)) == known


def test_what_inputs_are_follows_from_the_array(tmp_path: Path) -> None:
    classes = np.arange(20) % 3
    pictures = RNG.integers(0, 256, size=(20, 3, 8, 8), dtype=np.uint8)
    images = loaded(tmp_path / "images.npz", inputs=pictures, targets=classes)
    assert images.shape == {"channels": 3, "classes": 3}
    scaled = images.train.inputs / 255
    np.testing.assert_allclose(images.mean, scaled.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(images.std, scaled.std(axis=(0, 2, 3)))
    tokens = RNG.integers(0, 50, size=(20, 7))
    tokens[0, 0] = 49
    text = loaded(tmp_path / "text.npz", inputs=tokens, targets=classes)
    assert text.shape == {"vocabulary": 50, "length": 7, "classes": 3}
    masked = loaded(tmp_path / "masked.npz", inputs__tokens=tokens, inputs__mask=tokens > 3, targets=classes)
    assert masked.shape == text.shape
    np.testing.assert_array_equal(masked.train.inputs["mask"], masked.train.inputs["tokens"] > 3)


def test_a_split_that_is_there_is_kept(tmp_path: Path) -> None:
    y = np.arange(20) % 4
    both = save(tmp_path / "both.npz", inputs=X, targets=y, clients=SITES, test_inputs=X[:2], test_targets=y[:2])
    save(tmp_path / "d" / "train.npz", inputs=X, targets=y, clients=SITES)
    save(tmp_path / "d" / "test.safetensors", inputs=X[:2], targets=y[:2])
    for root in (both, str(tmp_path / "d")):
        source = Arrays(root=root)
        dataset = source.load()
        assert (len(dataset.train), len(dataset.test)) == (20, 2)
        assert dataset.shape == {"features": 3, "classes": 4}
        assert dataset.test.groups is None
        assert verify("arrays", root).counts == {"train": 20, "test": 2}


Y = np.arange(20) % 2
NAN = np.where(np.arange(60).reshape(20, 3) == 7, np.nan, 0.0)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no-targets": ({"inputs": X}, "has no array 'targets'; it has: inputs"),
    "unknown": ({"inputs": X, "targets": Y, "weights": Y}, "has an array 'weights'"),
    "lengths": ({"inputs": X, "targets": Y[:19]}, "20 rows of inputs for 19 targets"),
    "empty": ({"inputs": X[:0], "targets": Y[:0]}, "there are no samples"),
    "nan": ({"inputs": NAN, "targets": Y}, "inputs[2, 1] is nan"),
    "text": ({"inputs": np.full((20, 3), "a"), "targets": Y}, "inputs are of dtype <U1; give numbers"),
    "negative": ({"inputs": X, "targets": Y - 3}, "targets[0] is -3; classes are whole numbers from 0"),
    "labels": ({"inputs": X, "targets": np.stack([Y, Y + 1], axis=1)}, "is 2; yes is 1, no is 0"),
    "tokens": ({"inputs": np.full((20, 3), -1), "targets": Y}, "inputs[0, 0] is -1; tokens count from 0"),
    "few": ({"inputs": X[:2], "targets": Y[:2]}, "2 samples are too few to split"),
    "widths": (
        {"inputs": X, "targets": Y, "test_inputs": X[:, :2], "test_targets": Y},
        "inputs of shape (20, 3) to train on, (20, 2) to test on",
    ),
    "pickled": ({"inputs": np.array([[1], [None]], dtype=object), "targets": Y[:2]}, "Object arrays cannot be loaded"),
    "large": ({"inputs": np.array([[1.0], [1e300]] * 10), "targets": Y}, ", 0] is inf"),
    "parts": ({"inputs.a": X, "inputs.b": X, "targets": Y}, "inputs.tokens, inputs.mask"),
}


@pytest.mark.parametrize(("arrays", "says"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError) as caught:
        Arrays(root=str(tmp_path / "bad.npz")).load()
    assert says in str(caught.value)
    assert str(caught.value).startswith((str(tmp_path / "bad.npz"), "train: "))
    assert "\n" not in str(caught.value)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = Path(save(tmp_path / "a.npz", inputs=X, targets=Y)).read_bytes()
    for name, content in {
        "cut.npz": whole[: len(whole) // 2],
        "text.npz": b"x,y\n1,2\n",
        "pickle.npz": pickle.dumps([1, 2]),
        "cut.safetensors": Path(save(tmp_path / "a.safetensors", inputs=X, targets=Y)).read_bytes()[:-9],
        "text.safetensors": b"hello",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: is not a whole"):
            Arrays(root=str(tmp_path / name)).load()
    flipped = bytearray(whole)
    flipped[200] ^= 0xFF
    (tmp_path / "flipped.npz").write_bytes(flipped)
    with pytest.raises(DataError, match=r"flipped\.npz"):
        Arrays(root=str(tmp_path / "flipped.npz")).load()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ecgr.tasks.data.arrays.MOST_BYTES", 1 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("inputs.npy", b"\0" * (2 << 20))
    with pytest.raises(DataError, match="has more than 1,048,576 bytes unpacked"):
        Arrays(root=str(tmp_path / "bomb.npz")).load()


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.root: arrays needs"):
        Arrays().load()
    with pytest.raises(DataError, match="is not there"):
        Arrays(root=str(tmp_path / "none.npz")).load()
    with pytest.raises(DataError, match=r"no train\.npz or train\.safetensors"):
        Arrays(root=str(tmp_path)).load()
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(1))
    with pytest.raises(DataError, match=r"a\.pkl: is neither \.npz nor \.safetensors"):
        Arrays(root=str(tmp_path / "a.pkl")).load()


GOOD = """
import numpy as np

def load():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 4)), rng.integers(0, 2, size=30)
    return (x[:20], y[:20]), (x[20:], y[20:])
"""


@pytest.fixture
def site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ECGR_TASK", str(tmp_path / "task.py"))
    return tmp_path / "task.py"


def test_a_sites_samples_are_what_its_file_loads(site_file: Path) -> None:
    site_file.write_text(GOOD)
    data = Site().load()
    assert (len(data.train), len(data.test), dict(data.shape)) == (20, 10, {"features": 4, "outputs": 1})
    assert (data.loss, data.metrics[0]) == ("bce", "auc")
    assert Site(kind="classes", classes=5).load().shape["classes"] == 5, "classes that a site lacks can be stated"
    with pytest.raises(DataError, match=r"task\.py: train: label 1 at index \d+; labels go from 0 to 0"):
        Site(kind="classes", classes=1).load()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1", "has no function `load`"),
        ("def load():\n    return 3", "load gives int"),
        ("def load():\n    return ([1], [2]), 7", r"test: expected \(inputs, targets\), got int"),
        ("def load():\n    raise ValueError('no column')", r"cannot load the samples \(ValueError: no column"),
        ("def load():\n    return ([[1.0]], [1, 2]), ([[1.0]], [1])", "1 rows of inputs for 2 targets"),
        ("def load(:", "cannot load the samples"),
    ],
)
def test_a_file_that_does_not_fit_is_one_clear_line(site_file: Path, text: str, complaint: str) -> None:
    site_file.write_text(text)
    with pytest.raises(DataError, match=complaint):
        Site().load()


def test_without_a_file_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECGR_TASK", raising=False)
    with pytest.raises(ConfigError, match=r"\$ECGR_TASK: not set"):
        Site().load()
    monkeypatch.setenv("ECGR_TASK", "/nowhere/task.py")
    with pytest.raises(ConfigError, match=r"/nowhere/task\.py is not a file"):
        Site().load()
