"""Texts with speakers: who says what, windows that never cross from training to test, and what is wrong in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.data import Text
from ecgr.tasks.data.text import UNKNOWN, speeches, windows, words

PLAY = "".join(
    f"{'FIRST CITIZEN' if i % 3 else 'All'}:\nline {i} of the play, and so it goes:\non and on.\n\n" for i in range(60)
)


@pytest.fixture
def play(tmp_path: Path) -> str:
    (tmp_path / "play.txt").write_text(PLAY)
    return str(tmp_path / "play.txt")


def test_speakers_are_clients(play: str) -> None:
    """The Fool says too little."""
    Path(play).write_text(PLAY + "Fool:\non.\n")
    dataset = Text(root=play, length=20, stride=5, minimum=100).load()
    assert sorted(set(dataset.train.groups)) == sorted(set(dataset.test.groups)) == ["All", "FIRST CITIZEN"]
    characters = len(set(PLAY) - set("FIRSTCZENAl:") | set("l:"))
    assert dataset.shape == {"vocabulary": characters, "classes": characters, "length": 20}
    assert (dataset.loss, dataset.metrics) == ("cross_entropy", ("accuracy", "perplexity"))
    assert dataset.train.inputs.shape[1] == 20
    assert dataset.notes == ("2 of 3 speakers say at least 100 characters",)
    Path(play).write_bytes(b"\xef\xbb\xbf" + Path(play).read_bytes().replace(b"\n", b"\r\n"))
    again = Text(root=play, length=20, stride=5, minimum=100).load()  # marks at the start and line ends do not matter
    np.testing.assert_array_equal(again.train.inputs, dataset.train.inputs)


def test_the_end_of_what_a_speaker_says_is_for_testing(play: str) -> None:
    dataset = Text(root=play, length=20, stride=1, minimum=100, test_share=0.25).load()
    said = speeches(PLAY)["All"]
    end = len(said) - len(said) // 4

    def first(samples: Any) -> str:
        return "".join(dataset.classes[token] for token in samples.inputs[samples.groups == "All"][0])

    assert first(dataset.train) == said[:20]
    assert first(dataset.test) == said[end : end + 20]
    assert (dataset.train.groups == "All").sum() == end - 20
    last = dataset.test.targets[dataset.test.groups == "All"][-1]
    assert dataset.classes[last] == said[-1]


def test_words(play: str) -> None:
    dataset = Text(root=play, unit="word", length=5, stride=1, minimum=20, vocabulary=8).load()
    assert len(dataset.classes) == 8
    assert dataset.classes[-1] == UNKNOWN
    assert {"and", "on", "\n"} <= set(dataset.classes)
    assert (dataset.train.targets == 7).any()
    every = Text(root=play, unit="word", length=5, stride=1, minimum=20).load()
    assert UNKNOWN not in every.classes


def test_names_stand_at_the_head_of_a_paragraph() -> None:
    """By hand: prose before the first name is nobody's; a colon in mid-speech names nobody; no name, same speaker."""
    text = "A play.\n\nA:\nHe said:\nyes.\n\nand no.\n\nB: \nx\n\n\nA:\nbye"
    assert speeches(text) == {"A": "He said:\nyes.\nand no.\nbye\n", "B": "x\n"}
    assert speeches("") == speeches("nobody speaks here: no.\n") == {}
    assert words("Is't O'er?") == ["is't", "o'er", "?"]


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 8), st.integers(1, 5))
def test_windows_against_a_slow_oracle(tokens: list[int], length: int, stride: int) -> None:
    inputs, following = windows(np.array(tokens, dtype=np.int32), length, stride)
    starts = range(0, max(0, len(tokens) - length), stride)
    assert inputs.tolist() == [tokens[i : i + length] for i in starts]
    assert following.tolist() == [tokens[i + length] for i in starts]


BAD: dict[str, tuple[bytes | None, dict[str, Any], type[Exception], str]] = {
    "unsaid": (None, {"root": None}, ConfigError, "data.root: text needs a text file"),
    "missing": (None, {}, DataError, "is not a file; set data.root"),
    "silent": (b"no names here\n", {}, DataError, "no speaker found"),
    "binary": (b"A:\n\xff\xfe", {}, DataError, "is not UTF-8 text at byte 3"),
    "short": (b"A:\nhi\n\nB:\nhello\n", {}, DataError, "'B' says most, 6 characters: too few"),
    "long": (PLAY.encode(), {"length": 4000}, DataError, "lower data.minimum or data.length"),
}


@pytest.mark.parametrize(("content", "settings", "error", "says"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, content: bytes | None, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises(error) as caught:
        Text(**{"root": str(tmp_path / "t.txt"), **settings}).load()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
