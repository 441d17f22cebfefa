"""pandas tables become arrays by the training rows' categories and medians; what cannot is refused by column."""

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.task import Task

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


def test_other_bytes_are_another_task() -> None:
    assert of_frame().identity == of_frame().identity
    assert of_frame().identity != of_frame(TABLE.assign(age=TABLE["age"] * 2)).identity


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2020-01-01", periods=20),
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
    ("changes", "match"),
    [
        ({"frame": TABLE.assign(odd=[[1]] * 20)}, "column 'odd' holds list values"),
        ({"frame": TABLE.assign(age=np.inf)}, "column 'age', row 0: 'inf' is not finite"),
        ({"frame": TABLE.assign(ill=[None, "yes"] * 10)}, "column 'ill', row 0: a value is missing"),
        ({"missing": "refuse"}, "column 'age', row 1: a value is missing; missing = \"drop\""),
        ({"test": TABLE.assign(ill="perhaps")}, "column 'ill', row 0: 'perhaps' is no class of the training data"),
    ],
)
def test_what_cannot_be_used_names_its_column(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(DataError, match=match):
        of_frame(**changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"target": "sick"}, "there is no column 'sick'"),
        ({"test": 2}, "test: expected a share"),
        ({"settings": {}}, "settings: belong to a run, .* ecgr.compare or ecgr.run"),
    ],
)
def test_what_is_asked_wrongly(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        of_frame(**changes)


def test_targets_have_the_same_columns() -> None:
    x, y = np.zeros((4, 2), np.float32), pd.DataFrame({"a": [0.0] * 4, "b": [1.0] * 4})
    with pytest.raises(DataError, match=r"^test: 1 target columns, in the training data 2"):
        Task(train=(x, y), test=(x, y[["a"]]), model="logistic", loss="mse")
