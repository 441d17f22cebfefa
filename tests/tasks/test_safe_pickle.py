"""The restricted unpickler: what CIFAR needs is read, everything else is refused, and nothing ever runs."""

import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import DataError, EcgrError, IntegrityError
from ecgr.tasks.data.cifar import MOST_BYTES, read_pickle
from support.image_sets import python2_pickle, random_images
from support.quick import examples


def read(path: Path, content: bytes) -> dict[str, object]:
    path.write_bytes(content)
    return read_pickle(path)[0]


class Runs:
    """Pickles as a call of ``function``."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_protocol_are_read(tmp_path: Path, protocol: int, order: Any) -> None:
    images = np.asarray(random_images(6, 10), order=order)
    labels = np.arange(6, dtype=">i4")
    content = {"data": images, b"labels": labels, "names": ["a", b"b"], "n": 7}
    result = read(tmp_path / "batch", pickle.dumps(content, protocol))
    np.testing.assert_array_equal(result["data"], images)
    np.testing.assert_array_equal(result["labels"], labels)
    assert (result["names"], result["n"]) == (["a", b"b"], 7)


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    images = random_images(5, 3072)
    content = python2_pickle({"data": images, "labels": [3, 1], "batch_label": "training batch 1 of 5"})
    assert pickle.loads(content, encoding="bytes")[b"labels"] == [3, 1]  # numpy itself agrees that this is a pickle
    result = read(tmp_path / "batch", content)
    np.testing.assert_array_equal(result["data"], images)
    assert (result["labels"], result["batch_label"]) == ([3, 1], b"training batch 1 of 5")


def gadgets(canary: Path) -> dict[str, object]:
    touch = f"touch {canary}"
    holder = np.empty(2, dtype=object)
    holder[:] = [Runs(os.system, touch), 1]
    structured = np.zeros(2, dtype=[("a", "u1")])
    return {
        "system": Runs(os.system, touch),
        "nested in a dict": {"data": random_images(2, 3), "labels": [Runs(os.system, touch)]},
        "as a key": {(1, Runs(os.mkdir, str(canary))): 1},
        "object array": {"data": holder},
        "structured array": {"data": structured},
        "eval": Runs(eval, f"open({str(canary)!r}, 'w')"),
        "getattr": Runs(getattr, "x", "upper"),
        "numpy load": Runs(np.load, "x.npy"),
        "codecs decode": {"data": Runs(__import__("_codecs").decode, b"x", "utf-8")},
        "encode in another encoding": {"data": Runs(__import__("_codecs").encode, "x", "rot13")},
        "number as key": {1: 2},
        "set": {"data": {1, 2}},
        "complex": {"data": 1j},
        "float array": {"data": np.zeros(3)},
        "text array": {"data": np.array(["a"])},
        "dtype with metadata": {"data": np.dtype("u1", metadata={"a": 1})},
        "numpy scalar": {"labels": [np.int64(3)]},
        "path": {"data": canary},
    }


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("name", gadgets(Path("x")))
def test_a_pickle_that_wants_more_is_refused_and_nothing_runs(tmp_path: Path, name: str, protocol: int) -> None:
    canary = tmp_path / "canary"
    with pytest.raises(IntegrityError) as caught:
        read(tmp_path / "batch", pickle.dumps(gadgets(canary)[name], protocol))
    assert not canary.exists()
    assert "batch" in str(caught.value)
    assert "byte" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_canary_would_have_died(tmp_path: Path) -> None:
    """The gadget above works where it is let: with the standard unpickler the file appears."""
    canary = tmp_path / "canary"
    pickle.loads(pickle.dumps(gadgets(canary)["system"]))
    assert canary.exists()


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
NDARRAY = b"cnumpy\nndarray\n"
DTYPE = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR"
EMPTY_ARRAY = RECONSTRUCT + b"(" + NDARRAY + b"(I0\ntS'b'\ntR"
SYSTEM = b"(S'touch canary'\nios\nsystem\n"
HAND_MADE = {
    "instance opcode": SYSTEM + b".",
    "persistent id in text": b"Px\n.",
    "persistent id": b"\x80\x02U\x01xQ.",
    "extension": b"\x80\x02\x82\x01.",
    "called ndarray": b"\x80\x02" + NDARRAY + b"(K\x01tR.",
    "new ndarray": b"\x80\x02(" + NDARRAY + b"K\x01o.",
    "reconstruct of something else": RECONSTRUCT + b"(" + DTYPE + b"(I0\ntS'b'\ntR.",
    "reconstruct with a shape": RECONSTRUCT + b"(" + NDARRAY + b"(I9\ntS'b'\ntR.",
    "reconstruct with too few arguments": RECONSTRUCT + b"(" + NDARRAY + b"tR.",
    "state for a function": RECONSTRUCT + b"(dS'__code__'\nI1\nsb.",
    "slot state for a function": RECONSTRUCT + b"(N(dS'__defaults__'\n(I1\ntstb.",
    "dtype of objects": b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
    "dtype of records": b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",
    "dtype with fields": DTYPE + b"(I3\nS'|'\nN(S'a'\nt(dI-1\nI-1\nI0\ntb.",
    "array with an object state": EMPTY_ARRAY + b"(I1\n(I1\nt" + DTYPE + b"I00\n(lI1\natb.",
    "dotted name": b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",
    "builtins by the old name": b"c__builtin__\neval\n(S'1'\ntR.",
}


@pytest.mark.parametrize("content", HAND_MADE.values(), ids=HAND_MADE.keys())
def test_opcodes_that_no_pickler_writes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IntegrityError):
        read(tmp_path / "batch", content)
    assert not (tmp_path / "canary").exists()


def test_a_class_from_the_table_cannot_be_made_without_its_checks(tmp_path: Path) -> None:
    with pytest.raises(EcgrError):
        read(tmp_path / "batch", b"\x80\x02" + NDARRAY + b")\x81.")


WHOLE = pickle.dumps({"data": random_images(4, 16), "labels": [1, 2, 3, 4]}, 4)


def test_every_truncation_is_a_data_error(tmp_path: Path) -> None:
    for end in range(len(WHOLE)):
        with pytest.raises(DataError, match="batch"):
            read(tmp_path / "batch", WHOLE[:end])


def test_trailing_bytes_are_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"goes on after byte {len(WHOLE)}"):
        read(tmp_path / "batch", WHOLE + b"x")


@examples(200)
@given(position=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255), data=st.binary(max_size=40))
def test_whatever_the_bytes_are_the_answer_is_ours(
    tmp_path_factory: pytest.TempPathFactory, position: int, value: int, data: bytes
) -> None:
    folder = tmp_path_factory.getbasetemp()
    for content in (WHOLE[:position] + bytes([value]) + WHOLE[position + 1 :], data):
        with suppress(DataError, IntegrityError):
            read(folder / "batch", content)


NOT_A_BATCH = {
    "list": pickle.dumps([1]),
    "array": pickle.dumps(random_images(1, 2), 4),
    "array without content": RECONSTRUCT.join([b"(S'data'\n", b"(" + NDARRAY + b"(I0\ntS'b'\ntRd."]),
    "too few bytes": python2_pickle({"data": random_images(2, 3)}).replace(b"U\x06", b"U\x05", 1),
}


@pytest.mark.parametrize("content", NOT_A_BATCH.values(), ids=NOT_A_BATCH.keys())
def test_something_else_than_a_dict_of_arrays_is_a_data_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match="batch"):
        read(tmp_path / "batch", content)


ABSURD = {
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", 10**12) + b"x.",
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 10**12) + b"x.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 10**12) + b"x.",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 10**12) + b"N.",
    "memo": b"\x80\x02]r" + struct.pack("<I", 2**32 - 1) + b".",
    "string": b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"x.",
    "shape": python2_pickle({"data": random_images(2, 3)}).replace(struct.pack("<i", 3), struct.pack("<i", 2**31 - 1)),
}


@pytest.mark.parametrize("content", ABSURD.values(), ids=ABSURD.keys())
def test_an_absurd_size_is_refused_before_memory_is_set_aside(tmp_path: Path, content: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DataError):
            read(tmp_path / "batch", content)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_an_absurdly_large_file_is_not_even_begun(tmp_path: Path) -> None:
    with (tmp_path / "batch").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(IntegrityError, match="no official file has more"):
        read_pickle(tmp_path / "batch")


def test_a_thing_nested_in_itself_costs_nothing(tmp_path: Path) -> None:
    """Sixty tuples, each twice the one before: to print or to hash it would take 2**60 steps."""
    laughs: object = "ha"
    for _ in range(60):
        laughs = (laughs, laughs)
    pickled = pickle.dumps(laughs, 2)[2:-1]
    for content in (
        b"\x80\x02cnumpy\ndtype\n" + pickled + b"K\x00K\x01\x87R.",
        b"\x80\x02}" + pickled + b"K\x01s.",
        b"\x80\x02}(" + pickled + b"K\x01u.",
        b"\x80\x02(" + pickled + b"K\x01d.",
        b"\x80\x04\x8f(" + pickled + b"\x90.",
        b"\x80\x04(" + pickled + b"\x91.",
    ):
        with pytest.raises(IntegrityError):
            read(tmp_path / "batch", content)
