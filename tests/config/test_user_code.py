"""Objects in the place of names: described by class, fields and source, kept when something else changes."""

import builtins
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from ecgr.config.experiment import Experiment, load
from ecgr.config.registry import SECTIONS
from ecgr.config.user_code import task_or_name
from ecgr.core.geometry import Geometry, Regulation, identity
from ecgr.core.regulators import ECGR
from ecgr.errors import ConfigError


class Net(nn.Module):
    """A model as people write them: no annotations."""

    def __init__(self, channels, classes, width=3):  # type: ignore[no-untyped-def]
        super().__init__()
        self.width = width
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(channels * 784, classes))


MAKE: Any = Net


def net(*, channels: int, classes: int) -> Any:
    return MAKE(channels, classes)


class Share:
    """A regulator as people write them: an ordinary class."""

    def __init__(self, share: float = 0.5) -> None:
        self.share = share

    def __call__(self, geometry: Geometry) -> Regulation:
        return identity(geometry.steps)


def quickstart(**names: Any) -> Experiment:
    return load("quickstart", {f"{section}.name": value for section, value in names.items()})


@pytest.mark.parametrize("model", [Net, net, lambda classes, channels: MAKE(channels, classes), partial(MAKE, width=5)])
def test_a_model_is_anything_that_makes_one(model: Any) -> None:
    experiment = quickstart(model=model)
    built = experiment.model.build({"channels": 1, "classes": 10})
    assert isinstance(built, Net)
    assert experiment.replace({"run.seed": 4}).key() == experiment.key() != quickstart().key()


def test_a_class_takes_its_parameters_from_the_config() -> None:
    experiment = load(
        "quickstart", {"model.name": Net, "model.width": 7, "regulator.name": Share, "regulator.share": 0.2}
    )
    model: Any = experiment.model.build({"channels": 1, "classes": 10})
    assert model.width == 7
    config = experiment.to_dict()
    assert (config["regulator"]["share"], config["model"]["arguments"]) == (0.2, [{"width": 7}])
    assert experiment.key() != experiment.replace({"regulator.name": Share(0.3)}).key()


def test_an_object_of_a_table_s_class_is_recorded_by_its_name() -> None:
    assert quickstart(regulator=ECGR(beta=0.4)) == load("quickstart", {"regulator.name": "ecgr", "regulator.beta": 0.4})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"regulator.name": 3}, "regulator.name: expected a name that `ecgr list` shows, or an object, got 3"),
        ({"algorithm.name": object()}, "algorithm.name: expected an algorithm, got object, which has no method of an"),
        ({"data.name": object()}, "data.name: expected a data set, got object, which has no load"),
        ({"schedule.name": Share()}, "schedule.name: expected a schedule, got Share, which has no factor_at"),
        ({"regulator.name": Share(), "regulator.share": 0.1}, "regulator.share: Share is given as an object; give it"),
        ({"model.name": lambda channels, depth: None}, "model.name: the model needs depth, and the data have channels"),
    ],
)
def test_what_cannot_stand_for_a_name_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("quickstart", changes).model.build({"channels": 1})
    assert str(caught.value).startswith(says)


class Broken(Share):
    """A regulator that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("no\nluck")


@pytest.mark.parametrize("section", [name for name, section in SECTIONS.items() if section.table is not None])
def test_a_class_of_another_kind_is_refused_in_one_line(section: str) -> None:
    built_in = [each for each in vars(builtins).values() if isinstance(each, type)]
    for each in [*built_in, Decimal, Experiment, nn.Parameter, Broken]:
        with pytest.raises(ConfigError) as caught:
            quickstart(**{section: each})
        [line] = caught.value.problems
        assert line.startswith(f"{section}.name: ")
        assert each.__name__ in line
        assert len(line.splitlines()) == 1


class Digits:
    """A data set as people write them: it can be loaded."""

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def load(self) -> Any:
        return SECTIONS["data"].table["digits"]().load()  # type: ignore[index]


def test_an_object_that_loads_data_is_kept_when_something_else_changes() -> None:
    source = Digits(0.5)
    experiment = quickstart(data=source)
    assert experiment.replace({"run.seed": 4}).source is source
    assert experiment.to_dict()["data"]["share"] == 0.5


def test_a_task_file_imports_the_module_beside_it_and_no_other_of_that_name(tmp_path: Path) -> None:
    """In one process, as a notebook's: the files of two folders, and then of the first again."""
    task = "import ecgr\nfrom lies_beside import WIDTH\nhalf = ([[0.0] * WIDTH] * 4, [0, 1] * 2)\n"
    task += 'task = ecgr.Task(model="logistic", train=half, test=half, clients=2)\n'
    for width in (2, 3):
        folder = tmp_path / str(width)
        folder.mkdir()
        (folder / "lies_beside.py").write_text(f"WIDTH = {width}\n")
        (folder / "two_of_a_name.py").write_text(task)
    for width in (2, 3, 2):
        made: Any = task_or_name(f"{tmp_path / str(width) / 'two_of_a_name.py'}:task")
        assert made.train.inputs.shape == (4, width)
