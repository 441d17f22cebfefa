"""Tables, from CSV files and from pandas: the same rules, what only training rows teach, one line for what is wrong."""

import datetime
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.tasks.data import Csv, HeartDisease, Shakespeare, available, verify
from ecgr.tasks.data.dataset import holdout
from ecgr.tasks.data.frames import filled
from ecgr.tasks.data.tables import parse_table, standardised
from ecgr.tasks.task import Task

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


GAPS = "x,c,y\n1,a,0\n?,b,1\n3,,0\n-9.0,a,1\n5,b,0\n"


def test_missing_values_by_the_rule(write: Callable[..., str]) -> None:
    settings: dict[str, Any] = {"root": write(GAPS), "target": "y", "missing_values": ("?", "-9"), "standardise": False}
    for rule in ("mean", "median"):
        dataset = Csv(missing=rule, categorical=("c",), **settings).load()
        numbers = np.concatenate([dataset.train.inputs, dataset.test.inputs])[:, 0]
        known = [row[0] for row in dataset.train.inputs if row[0] in (1, 3, 5)]
        assert len(numbers) == 5
        assert {round(float(x), 5) for x in numbers} <= {1, 3, 5, round(float(np.mean(known)), 5)}
        assert "3 missing values" in dataset.notes[0]
    dropped = Csv(missing="drop", categorical=("c",), test_share=0.5, kind="binary", **settings).load()
    assert len(dropped.train) + len(dropped.test) == 2
    assert dropped.notes == ("3 of 5 rows left out: a value is missing",)
    with pytest.raises(DataError, match=r"line 3, column 'x': a value is missing"):
        Csv(categorical=("c",), **settings).load()
    settings["root"] = write("x,c,y\n" + "".join(f"{i},?,{i % 2}\n" for i in range(20)))
    assert Csv(missing="mean", categorical=("c",), **settings).load().shape["features"] == 1  # c is never known


ONLY_X = {"features": ("x",), "missing_values": ("4",)}
HALVES = {"train.csv": "x,c,y\n1,a,0\n3,a,1\n", "test.csv": "x,c,y\n4,b,1\n"}
BAD: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "empty": ("", {}, DataError, "has no row of data"),
    "twice": ("x,x,y\n1,2,0\n", {}, DataError, "line 1: two columns are named 'x'"),
    "nameless": ("x,,y\n1,2,0\n", {}, DataError, "line 1: column 2 has no name"),
    "ragged": ("x,y\n1,0\n1,2,3\n", {}, DataError, "line 3 has 3 values for 2 columns"),
    "lines": ('\n\nx,y\n"1\n",0\n\na,1\n', {}, DataError, "line 7, column 'x': 'a' is not a number"),
    "quote": ('x,y\n1,0\n"1,0\n', {}, DataError, "line 3 is not CSV (unexpected end of data)"),
    "word": ("x,y\n1,0\nmale,1\n", {}, DataError, "line 3, column 'x': 'male' is not a number; name the column in"),
    "underscore": ("x,y\n1,0\n1_0,1\n", {}, DataError, "line 3, column 'x': '1_0' is not a number"),
    "gap": ("x,y\n1,0\n,1\n", {}, DataError, "line 3, column 'x': a value is missing"),
    "no-target": ("x,y\n1,0\n2,\n", {"missing": "mean"}, DataError, "line 3, column 'y': a value is missing"),
    "all-gone": ("x,y\n,0\n,1\n", {"missing": "drop"}, DataError, "a value is missing in every row"),
    "target": ("x,y\n1,0\n", {"target": "z"}, ConfigError, "data.target: there is no column 'z'; there are: x, y"),
    "unsaid": ("x,y\n1,0\n", {"target": None}, ConfigError, "data.target: csv needs the column to predict"),
    "category": ("x,y\n1,0\n", {"categorical": ("q=1,2",)}, ConfigError, "data.categorical: there is no column 'q'"),
    "above": ("x,y\n1,0\n2,ill\n", {"above": 0.0}, DataError, "line 3, column 'y': 'ill' is not a number"),
    "latin": ("x,y\né,0\n".encode("latin-1"), {}, DataError, "is not UTF-8 text at byte 4"),
    "itself": ("x,y\n1,0\n", {"features": ("y",)}, ConfigError, "data.features: y to predict 'y' from"),
    "other": ("x,y\n1,0\n5,1\n", {"categorical": ("x=1,2",)}, DataError, "line 3, column 'x': '5' is not one of 1, 2"),
    "binary": ("x,y\n1,0\n2,5\n3,7\n", {"kind": "binary"}, DataError, "line 4, column 'y': '7' makes 3 different"),
    "one-class": ("x,y\n1,a\n2,a\n", {}, DataError, "'a' is in every row; there must be at least two classes"),
    "large": ("x,y\n1,0\n-2e19,1\n", {}, DataError, "line 3, column 'x': '-2e19' is too large, numbers go up to"),
    "columns": ({"a.csv": "x,y\n1,0\n", "b.csv": "x,z\n1,0\n"}, {}, DataError, "b.csv: has other columns than"),
    "no-train-row": (HALVES, {"client": "c", "scope": "client"}, DataError, "client 'b' has no training row"),
    "no-test-row": (HALVES, {**ONLY_X, "missing": "drop"}, DataError, "2 rows to train on, 0 to test on"),
    "separator": ("x,y\n1,0\n", {"separator": ""}, ConfigError, "data.separator: expected one character, got ''"),
    "files": ("x,y\n1,0\n", {"files": "../*.csv"}, ConfigError, "data.files: expected a name with one * for the"),
    "few": ("x,y\n1,0\n2,1\n", {}, DataError, "2 rows to train on, 0 to test on; see data.test_share"),
}


@pytest.mark.parametrize(("text", "settings", "error", "says"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_said_in_one_line(
    write: Callable[..., str], text: Any, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    files = text if isinstance(text, dict) else {"t.csv": text}
    places = [write(content, name) for name, content in files.items()]
    root = places[0] if len(places) == 1 else str(Path(places[0]).parent)
    with pytest.raises(error) as caught:
        Csv(**{"root": root, "target": "y", **settings}).load()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_not_there_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"data\.root: csv needs a CSV file"):
        Csv(target="y").load()
    with pytest.raises(DataError, match="is not there"):
        Csv(root=str(tmp_path / "none.csv"), target="y").load()
    with pytest.raises(DataError, match=r"no \*\.csv in"):
        Csv(root=str(tmp_path), target="y").load()
    with pytest.raises(DataError, match=r"heart_disease: no heart-disease/ in .* put the four"):
        HeartDisease(root=str(tmp_path)).load()
    with pytest.raises(DataError, match=r"shakespeare: no tiny-shakespeare/ in .*; run `ecgr data fetch shakespeare`"):
        Shakespeare(root=str(tmp_path)).load()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(EnvironmentFault, match=r"^reading tables needs packages of the extra 'data': pip install "):
        parse_table(tmp_path / "t.csv", PATIENTS)


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


TABLE = pd.DataFrame(
    {
        "age": [1.0, None, 3.0, 5.0] * 5,
        "sex": ["f", "m", None, "m"] * 5,
        "stage": pd.Categorical(["low", "high", "low", "high"] * 5, categories=["low", "mid", "high"]),
        "smoker": [True, False] * 10,
        "site": list("aabb") * 5,
        "ill": ["no", "yes"] * 10,
    }
)


def of_frame(frame: Any = TABLE, **changes: Any) -> Task:
    return Task.from_frame(frame, **{"target": "ill", "model": list, "client": "site", **changes})


def test_a_row_is_what_the_rules_say() -> None:
    inputs, targets = TABLE.drop(columns=["site", "ill"]), TABLE["ill"]
    task = Task(model=list, train=(inputs, targets), test=(inputs, targets), clients=TABLE["site"])
    expected = [[1, 1, 0, 1, 0, 0, 1], [3, 0, 1, 0, 0, 1, 0], [3, 0, 0, 1, 0, 0, 1], [5, 0, 1, 0, 0, 1, 0]]
    assert task.train.inputs[:4].tolist() == expected  # age, f, m, low, mid, high, smoker
    assert task.train.targets[:2].tolist() == [0, 1]
    assert task.load().notes == ("20 missing values: the median of the training rows, or no category",)


def test_test_rows_teach_nothing() -> None:
    train, test = TABLE[["age", "sex"]], pd.DataFrame({"age": [None, 900.0], "sex": ["x", "f"]})
    task = Task(model=list, train=(train, TABLE["ill"]), test=(test, pd.Series(["no", "yes"])))
    assert task.test.inputs.tolist() == [[3, 0, 0], [900, 1, 0]]


def test_a_frame_is_split_by_share_column_or_table() -> None:
    share = of_frame(test=0.2)
    assert (len(share.train), len(share.test), sorted({*share.test.groups})) == (16, 4, ["a", "b"])
    held = np.arange(20) >= 12
    marked = of_frame(TABLE.assign(held=held), test="held")
    second = of_frame(TABLE[~held], test=TABLE[held])
    assert marked.identity.sha256 == second.identity.sha256
    assert len(of_frame(missing="drop").train) + len(of_frame(missing="drop").test) == 10


def test_a_csv_file_is_a_frame_that_was_read(write: Callable[..., str], tmp_path: Path) -> None:
    """The same table as file and as frame: the same categories, the same filling, the same split."""
    TABLE.to_csv(tmp_path / "t.csv", index=False)
    file = Csv(root=str(tmp_path / "t.csv"), target="ill", client="site", categorical=("sex", "stage=low,mid,high"),
               missing="median", standardise=False, features=("age", "sex", "stage")).load()  # fmt: skip
    task = of_frame(features=TABLE.columns[:3])
    for one, other in ((file.train, task.train), (file.test, task.test)):
        np.testing.assert_array_equal(one.inputs, other.inputs)
        np.testing.assert_array_equal(one.targets, other.targets)
        np.testing.assert_array_equal(one.groups, other.groups)


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=20, tz="UTC"),
        pd.timedelta_range("1s", periods=20),
        pd.period_range("2020-01", periods=20, freq="M"),
        [datetime.date(2020, 1, 1)] * 20,
    ],
)
def test_dates_are_refused_by_name(values: Any) -> None:
    with pytest.raises(DataError, match=r"^column 'seen' holds dates; .*df\['seen'\]"):
        of_frame(TABLE.assign(seen=values))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frame": TABLE.assign(odd=[[1]] * 20)}, "column 'odd' holds list values"),
        ({"frame": TABLE.assign(age=np.inf)}, "train: column 'age', row 0: 'inf' is not finite"),
        ({"frame": TABLE.assign(ill=[None, "yes"] * 10)}, "column 'ill', row 0: a value is missing"),
        ({"missing": "refuse"}, "column 'age', row 1: a value is missing; missing = \"drop\""),
        (
            {"test": TABLE.assign(ill="perhaps")},
            "test: column 'ill', row 0: 'perhaps' is no class of the training data",
        ),
        ({"test": "sex"}, "column 'sex', row 2: a value is missing"),
        ({"test": "age", "missing": "drop"}, "test: column 'age', row 0: '1.0' is neither True"),
        ({"target": "sick"}, "target: there is no column 'sick'; there are: age, sex"),
        ({"features": ["ill"]}, "features: ill to predict 'ill' from"),
        ({"test": 2}, "test: expected a share"),
        ({"settings": {}}, "settings: belong to a run, not to a task; give them to ecgr.compare or ecgr.run"),
    ],
)
def test_what_a_frame_cannot_give_names_column_and_row(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        of_frame(**changes)
    assert str(caught.value).startswith(message)


ATTRIBUTES = ",".join(f"X{i}" for i in range(1, 15)) + "\n"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def patient(i: int, missing: str = "-9") -> str:
    chest_pain, slope, thal = 1 + i % 4, 1 + i % 3, (3, 6, 7)[i % 3]
    cholesterol = missing if i % 5 == 0 else str(200 + i)
    return f"{40 + i},{i % 2},{chest_pain}.0,120,{cholesterol},0,{i % 3},150,0,1.5,{slope},{missing},{thal},{i % 5}\n"


def write_hospitals(root: Path, header: str = ATTRIBUTES, missing: str = "-9") -> str:
    folder = root / "heart-disease"
    folder.mkdir(parents=True)
    for start, hospital in enumerate(HOSPITALS):
        rows = "".join(patient(10 * start + i, missing) for i in range(20))
        (folder / f"processed.{hospital}.data").write_text(header + rows)
    return str(root)


def test_one_hospital_a_client(tmp_path: Path) -> None:
    dataset = HeartDisease(root=write_hospitals(tmp_path)).load()
    assert tuple(sorted(set(dataset.train.groups))) == tuple(sorted(set(dataset.test.groups))) == HOSPITALS
    assert dataset.shape == {"features": 9 + 4 + 3 + 3 + 4, "outputs": 1}
    assert (dataset.loss, dataset.metrics[0]) == ("bce", "auc")
    assert (len(dataset.train), len(dataset.test)) == (64, 16)
    assert dataset.train.targets.mean() == pytest.approx(0.8, abs=0.05)  # diagnoses 1 to 4 of 0 to 4
    report = verify("heart_disease", str(tmp_path))
    assert report.status == "whole"
    assert dataset.notes[0] == report.details[0]
    assert report.details[0].startswith("whole: other bytes in processed.cleveland.data, ")


def test_uci_files_have_no_header_and_question_marks(tmp_path: Path) -> None:
    ours = HeartDisease(root=write_hospitals(tmp_path / "ours")).load()
    theirs = HeartDisease(root=write_hospitals(tmp_path / "theirs", header="", missing="?")).load()
    np.testing.assert_array_equal(ours.train.inputs, theirs.train.inputs)


there = {row.name for row in available() if row.place} if os.environ.get("ECGR_DATA") else set()


@pytest.mark.skipif(not {"heart_disease", "shakespeare"} <= there, reason="not below $ECGR_DATA")
def test_the_real_files() -> None:
    hospitals = HeartDisease().load()
    assert verify("heart_disease").status == verify("shakespeare").status == "official"
    assert len(hospitals.train) + len(hospitals.test) == 920
    names, counts = np.unique(hospitals.train.groups, return_counts=True)
    assert (tuple(names), counts.tolist()) == (HOSPITALS, [242, 235, 98, 160])
    plays = Shakespeare().load()
    assert plays.shape == {"vocabulary": 65, "classes": 65, "length": 80}
    assert "JULIET" in plays.train.groups
    assert plays.notes == ("64 of 309 speakers say at least 5,000 characters",)
