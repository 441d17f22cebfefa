"""CSV files: what is read, what is learnt from training rows alone, and one line for everything that is wrong."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.tasks.data import Csv, verify
from ecgr.tasks.data.dataset import holdout
from ecgr.tasks.data.tables import filled, parse_table, standardised

PATIENTS = "age,pain,pressure,site,ill\n" + "".join(
    f"{30 + i},{'abc'[i % 3]},{100 + 7 * i % 40},{'north' if i % 4 else 'south'},{i % 2}\n" for i in range(40)
)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def written(text: str | bytes, name: str = "patients.csv") -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return written


def test_a_table_with_clients(write: Callable[..., str]) -> None:
    source = Csv(root=write(PATIENTS), target="ill", client="site", categorical=("pain",))
    dataset = source.load()
    assert dataset.shape == {"features": 5, "outputs": 1}
    assert (dataset.loss, dataset.metrics, dataset.classes) == ("bce", ("auc", "accuracy"), ("0", "1"))
    assert (len(dataset.train), len(dataset.test)) == (32, 8)
    assert dataset.train.inputs.dtype == np.float32
    assert set(dataset.train.groups) == set(dataset.test.groups) == {"north", "south"}
    numbers, one_hot = dataset.train.inputs[:, [0, 4]], dataset.train.inputs[:, 1:4]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(numbers.std(axis=0), 1, atol=1e-6)
    assert set(one_hot.ravel()) == {0.0, 1.0}
    assert (one_hot.sum(axis=1) == 1).all()
    assert list(dataset.files) == ["patients.csv"]
    assert verify("csv", source.root).counts == {"rows": 40}


HEADER, _, ROWS = PATIENTS.partition("\n")
SPELLINGS: dict[str, tuple[str | bytes, dict[str, Any]]] = {
    "bom": (b"\xef\xbb\xbf" + PATIENTS.encode(), {}),
    "crlf": (PATIENTS.replace("\n", "\r\n"), {}),
    "spaces": (PATIENTS.replace(",", " , "), {}),
    "quotes": ("".join(",".join(f'"{c}"' for c in line.split(",")) + "\n" for line in PATIENTS.splitlines()), {}),
    "blank-lines": (PATIENTS.replace("\n", "\n\n"), {}),
    "no-last-newline": (PATIENTS.rstrip("\n"), {}),
    "semicolons": (PATIENTS.replace(",", ";"), {"separator": ";"}),
    "no-header": (ROWS, {"columns": tuple(HEADER.split(","))}),
    "header-and-names": (PATIENTS, {"columns": tuple(HEADER.split(","))}),
}


@pytest.mark.parametrize(("text", "more"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_spellings_of_the_same_table(write: Callable[..., str], text: str | bytes, more: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"target": "ill", "client": "site", "categorical": ("pain",)}
    plain = Csv(root=write(PATIENTS), **settings).load()
    other = Csv(root=write(text, "other.csv"), **settings, **more).load()
    np.testing.assert_array_equal(plain.train.inputs, other.train.inputs)
    np.testing.assert_array_equal(plain.test.targets, other.test.targets)


KINDS = {
    "binary": (["no", "yes"] * 10, "auto", "bce", {"outputs": 1}, ("no", "yes")),
    "two-numbers": (["1", "2.0"] * 10, "auto", "bce", {"outputs": 1}, ("1", "2")),
    "names": (["c", "a", "b", "a"] * 5, "auto", "cross_entropy", {"classes": 3}, ("a", "b", "c")),
    "grades": (["10", "9", "1", "9"] * 5, "auto", "cross_entropy", {"classes": 3}, ("1", "9", "10")),
    "prices": ([f"{i}.5" for i in range(20)], "auto", "mse", {"outputs": 1}, ()),
    "counts": ([str(i) for i in range(30)], "auto", "mse", {"outputs": 1}, ()),
    "few-numbers": (["1", "2", "3", "4"] * 5, "numbers", "mse", {"outputs": 1}, ()),
    "all-ill": (["1"] * 20, "binary", "bce", {"outputs": 1}, ("0", "1")),
}


@pytest.mark.parametrize(("values", "kind", "loss", "shape", "classes"), KINDS.values(), ids=KINDS.keys())
def test_the_kind_of_target_decides_loss_and_metrics(
    write: Callable[..., str], values: list[str], kind: Any, loss: str, shape: dict[str, int], classes: tuple[str, ...]
) -> None:
    root = write("x,y\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)))
    dataset = Csv(root=root, target="y", kind=kind).load()
    assert dataset.loss == loss
    assert dataset.shape == {"features": 1, **shape}
    assert dataset.classes == classes


def test_a_number_above_which_it_is_a_yes(write: Callable[..., str]) -> None:
    root = write("x,y\n" + "".join(f"{i},{i % 5}\n" for i in range(20)))
    dataset = Csv(root=root, target="y", above=1, standardise=False).load()
    raw = np.concatenate([dataset.train.inputs[:, 0], dataset.test.inputs[:, 0]])
    np.testing.assert_array_equal(np.concatenate([dataset.train.targets, dataset.test.targets]), raw % 5 > 1)


def test_one_file_a_client(write: Callable[..., str]) -> None:
    """A client finds the same samples, to the bit, whether the others' files are there or not."""
    for name, start in (("east", 0), ("west", 50)):
        write("x,k,y\n" + "".join(f"{start + i},{i % 2},{i % 2}\n" for i in range(20)), f"sites/{name}.csv")
    root = Path(write("not a table", "sites/readme.txt")).parent
    settings: dict[str, Any] = {"target": "y", "kind": "binary", "scope": "client", "categorical": ("k=0,1",)}
    together = Csv(root=str(root), **settings).load()
    assert sorted(set(together.train.groups)) == ["east", "west"]
    assert sorted(together.files) == ["east.csv", "west.csv"]
    (root / "east.csv").unlink()
    alone = Csv(root=str(root), **settings).load()
    own = together.train.groups == "west"
    np.testing.assert_array_equal(together.train.inputs[own], alone.train.inputs)
    np.testing.assert_array_equal(together.train.targets[own], alone.train.targets)
    np.testing.assert_array_equal(together.test.inputs[together.test.groups == "west"], alone.test.inputs)


def test_a_split_that_is_there_is_kept(write: Callable[..., str]) -> None:
    write("x,y\n1,0\n3,1\n", "train.csv")
    root = Path(write("y,x\n1,4\n", "test.csv")).parent
    dataset = Csv(root=str(root), target="y").load()
    assert dataset.train.groups is None
    assert dataset.train.inputs.tolist() == [[-1.0], [1.0]]
    assert dataset.test.inputs.tolist() == [[2.0]]


def test_a_category_that_is_missing_everywhere_gives_no_feature(write: Callable[..., str]) -> None:
    root = write("x,c,y\n" + "".join(f"{i},?,{i % 2}\n" for i in range(20)))
    dataset = Csv(root=root, target="y", categorical=("c",), missing="mean", missing_values=("?",)).load()
    assert dataset.shape["features"] == 1


GAPS = "x,c,y\n1,a,0\n?,b,1\n3,,0\n-9.0,a,1\n5,b,0\n"


def test_missing_values_by_the_rule(write: Callable[..., str]) -> None:
    root = write(GAPS)
    settings: dict[str, Any] = {"target": "y", "categorical": ("c",), "missing_values": ("?", "-9")}
    settings |= {"standardise": False, "test_share": 0.2}
    for rule in ("mean", "median"):
        dataset = Csv(root=root, missing=rule, **settings).load()
        numbers = np.concatenate([dataset.train.inputs, dataset.test.inputs])
        assert len(numbers) == 5
        known = [row[0] for row in dataset.train.inputs if row[0] in (1, 3, 5)]
        assert {round(float(x), 5) for x in numbers[:, 0]} <= {1, 3, 5, round(float(np.mean(known)), 5)}
        assert "3 missing values" in dataset.notes[0]
    dropped = Csv(root=root, missing="drop", **{**settings, "test_share": 0.5, "kind": "binary"}).load()
    assert len(dropped.train) + len(dropped.test) == 2
    assert dropped.notes == ("3 of 5 rows left out: a value is missing",)
    with pytest.raises(DataError, match=r"line 3, column 'x': a value is missing"):
        Csv(root=root, **settings).load()


BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "empty": ("", {}, DataError, "has no row of data"),
    "twice": ("x,x,y\n1,2,0\n", {}, DataError, "line 1: two columns are named 'x'"),
    "nameless": ("x,,y\n1,2,0\n", {}, DataError, "line 1: column 2 has no name"),
    "ragged": ("x,y\n1,0\n1,2,3\n", {}, DataError, "line 3 has 3 values for 2 columns"),
    "short": ("x,y\n1,0\n1\n", {"missing": "drop"}, DataError, "line 3 has 1 values for 2 columns"),
    "lines": ('\n\nx,y\n"1\n",0\n\na,1\n', {}, DataError, "line 7, column 'x': 'a' is not a number"),
    "quote": ('x,y\n1,0\n"1,0\n', {}, DataError, "line 3 is not CSV (unexpected end of data)"),
    "word": ("x,y\n1,0\nmale,1\n", {}, DataError, "line 3, column 'x': 'male' is not a number; name the column in"),
    "nan": ("x,y\n1,0\nnan,1\n", {}, DataError, "line 3, column 'x': 'nan' is not a number"),
    "underscore": ("x,y\n1,0\n1_0,1\n", {}, DataError, "line 3, column 'x': '1_0' is not a number"),
    "gap": ("x,y\n1,0\n,1\n", {}, DataError, "line 3, column 'x': a value is missing"),
    "no-target": ("x,y\n1,0\n2,\n", {"missing": "mean"}, DataError, "line 3, column 'y': a value is missing"),
    "all-gone": ("x,y\n,0\n,1\n", {"missing": "drop"}, DataError, "a value is missing in every row"),
    "target": ("x,y\n1,0\n", {"target": "z"}, ConfigError, "data.target: there is no column 'z'; there are: x, y"),
    "unsaid": ("x,y\n1,0\n", {"target": None}, ConfigError, "data.target: csv needs the column to predict"),
    "client": ("x,y\n1,0\n", {"client": "c"}, ConfigError, "data.client: there is no column 'c'"),
    "category": ("x,y\n1,0\n", {"categorical": ("q=1,2",)}, ConfigError, "data.categorical: there is no column 'q'"),
    "above": ("x,y\n1,0\n2,ill\n", {"above": 0.0}, DataError, "line 3, column 'y': 'ill' is not a number"),
    "latin": ("x,y\né,0\n".encode("latin-1"), {}, DataError, "is not UTF-8 text at byte 4"),
    "nothing": ("y\n1\n0\n", {}, ConfigError, "data.features: nothing to predict 'y' from"),
    "features": ("x,y\n1,0\n", {"features": ("q",)}, ConfigError, "data.features: there is no column 'q'"),
    "itself": ("x,y\n1,0\n", {"features": ("y",)}, ConfigError, "data.features: y to predict 'y' from"),
    "other": ("x,y\n1,0\n5,1\n", {"categorical": ("x=1,2",)}, DataError, "line 3, column 'x': '5' is not one of 1, 2"),
    "binary": ("x,y\n1,0\n2,5\n3,7\n", {"kind": "binary"}, DataError, "line 4, column 'y': '7' makes 3 different"),
    "numbers": ("x,y\n1,0\n2,a\n", {"kind": "numbers"}, DataError, "line 3, column 'y': 'a' is not a number"),
    "one-class": ("x,y\n1,a\n2,a\n", {}, DataError, "'a' is in every row; there must be at least two classes"),
    "columns": (
        {"a.csv": "x,y\n1,0\n", "b.csv": "x,z\n1,0\n"},
        {},
        DataError,
        "b.csv: has other columns than",
    ),
    "no-train-row": (
        {"train.csv": "x,c,y\n1,a,0\n3,a,1\n", "test.csv": "x,c,y\n4,b,1\n"},
        {"client": "c", "scope": "client"},
        DataError,
        "client 'b' has no training row",
    ),
    "no-test-row": (
        {"train.csv": "x,y\n" + "1,0\n3,1\n" * 10, "test.csv": "x,y\n,1\n"},
        {"missing": "drop"},
        DataError,
        "20 rows to train on, 0 to test on",
    ),
    "separator": ("x,y\n1,0\n", {"separator": ""}, ConfigError, "data.separator: expected one character, got ''"),
    "files": (
        "x,y\n1,0\n",
        {"files": "../*.csv"},
        ConfigError,
        "data.files: expected a name with one * for the client",
    ),
    "few": ("x,y\n1,0\n2,1\n", {}, DataError, "2 rows to train on, 0 to test on; see data.test_share"),
}


@pytest.mark.parametrize(("text", "settings", "error", "says"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_said_in_one_line(
    write: Callable[..., str],
    text: str | bytes | dict[str, str],
    settings: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    files = text if isinstance(text, dict) else {"t.csv": text}
    places = [write(content, name) for name, content in files.items()]
    root = places[0] if len(places) == 1 else str(Path(places[0]).parent)
    with pytest.raises(error) as caught:
        Csv(**{"root": root, "target": "y", **settings}).load()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.root: csv needs a CSV file"):
        Csv(target="y").load()
    with pytest.raises(DataError, match="is not there"):
        Csv(root=str(tmp_path / "none.csv"), target="y").load()
    with pytest.raises(DataError, match=r"no \*\.csv in"):
        Csv(root=str(tmp_path), target="y").load()


cells = st.text(st.characters(codec="utf-8", exclude_characters='\r\n",\x00 '), min_size=1).filter(
    lambda text: text.strip() == text
)


@given(st.lists(st.tuples(cells, cells), min_size=1))
def test_every_cell_comes_back(rows: list[tuple[str, str]]) -> None:
    text = "a,b\n" + "".join(f'"{x}",{y}\n' for x, y in rows)
    assert parse_table(Path("t.csv"), text).to_numpy().tolist() == [list(row) for row in rows]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), min_size=1, max_size=60),
    st.floats(0.05, 0.95),
    st.integers(0, 99),
)
def test_the_split_is_by_client_and_class(rows: list[tuple[str, int]], share: float, seed: int) -> None:
    clients, classes = np.array([c for c, _ in rows]), np.array([k for _, k in rows])
    test = holdout(clients, classes, share, seed)
    for client in set(clients):
        own = clients == client
        assert test[own].sum() == min(int(np.floor(own.sum() * share + 0.5)), own.sum() - 1)
        assert not test[own].all()
        for label in set(classes[own]):
            members = own & (classes == label)
            assert abs(test[members].sum() - members.sum() * share) <= 1 + 1e-6
        np.testing.assert_array_equal(holdout(clients[own], classes[own], share, seed), test[own])


@given(
    st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=2, max_size=20), st.sampled_from(["mean", "median"])
)
def test_nothing_of_a_test_row_is_learnt(column: list[float | None], rule: str) -> None:
    values = np.array([[np.nan if x is None else x] for x in column])
    train = np.arange(len(values)) % 2 == 0
    disturbed = np.where(train[:, None], values, 12345.0)
    whole, other = filled(values, train, rule), filled(disturbed, train, rule)
    np.testing.assert_array_equal(whole[train], other[train])
    np.testing.assert_array_equal(standardised(whole, train)[train], standardised(other, train)[train])
    assert np.isfinite(standardised(whole, train)).all()


@pytest.mark.parametrize(("column", "number"), [("pressure", "1e300"), ("pressure", "-2e19"), ("age", "1e39")])
def test_a_number_that_would_ruin_the_scale_is_refused(write: Callable[..., str], column: str, number: str) -> None:
    lines = [line.split(",") for line in PATIENTS.splitlines()]
    lines[7][lines[0].index(column)] = number
    path = write("\n".join(map(",".join, lines)))
    source = partial(Csv, target="age", kind="numbers", client="site", categorical=("pain",))
    with pytest.raises(DataError, match=f"^{path}: line 8, column '{column}': '{number}' is too large, [^\n]*$"):
        source(root=path).load()
    lines[7][lines[0].index(column)] = "1e18"
    source(root=write("\n".join(map(",".join, lines)))).load()


def test_without_pandas_it_is_said_what_to_install(write: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EnvironmentFault, match=r"^reading tables needs packages of the extra 'data': pip install "):
        Csv(root=write(PATIENTS), target="ill").load()
