"""The leaderboard's problems: every command can be planned as it is printed, with one budget for all methods."""

import shlex

import pytest
from study.problems import PROBLEMS, problem

from ecgr.cli.comparing import grid_of
from ecgr.cli.options import overrides
from ecgr.config.methods import split_methods
from ecgr.errors import ConfigError
from ecgr.runs.plan import plan_comparison, trials


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problems_command_plans_every_method_with_the_same_budget(name: str) -> None:
    _, _, preset, *words = shlex.split(problem(name).command)
    given = list(zip(words[::2], words[1::2], strict=True))
    options = dict(given)
    planned = plan_comparison(
        preset,
        methods=split_methods(options["--methods"]),
        seeds=options["--seeds"],
        tune=grid_of([options["--tune"]]),
        settings=overrides([value for key, value in given if key == "--set"]),
    )
    assert [arm.name for arm in planned.arms] == list(problem(name).methods)
    assert {len(trials(planned.raw, arm, planned.grid)) for arm in planned.arms} == {3}
    assert planned.design.baseline == "fedavg" and len(planned.seeds) >= 10


def test_an_unknown_problem_is_refused_in_a_line() -> None:
    with pytest.raises(ConfigError, match="no problem 'mnist'; there are heart"):
        problem("mnist")
