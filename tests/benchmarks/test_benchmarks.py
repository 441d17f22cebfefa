"""The benchmarks' own arithmetic: what counts as met, what the command answers, and that every claim has its row."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from typer.testing import CliRunner

from ecgr.core.regulators import herd


def _module(name: str) -> Any:
    """A module of ``benchmarks``, which is no part of the package."""
    return import_module(f"benchmarks.{name}")


rows, suite, app = _module("rows"), _module("suite"), _module("__main__").app


def bench(monkeypatch: pytest.MonkeyPatch, *found: Any) -> Any:
    """`python -m benchmarks` on a suite that measures just these rows."""

    def measured(quick: bool) -> Iterator[Any]:
        yield from found

    monkeypatch.setattr(suite, "BENCHMARKS", {"one": measured})
    return CliRunner().invoke(app, [])


@pytest.mark.parametrize(
    ("make", "value", "passed"),
    [
        (rows.at_most, 1.0, True),
        (rows.at_most, 1.01, False),
        (rows.at_least, 35.0, True),
        (rows.at_least, 34.9, False),
        (rows.at_most, float("nan"), False),
    ],
)
def test_a_bound_holds_up_to_its_limit(make: Callable[..., Any], value: float, passed: bool) -> None:
    assert make("x", value, 35.0 if make is rows.at_least else 1.0).passed is passed


@pytest.mark.parametrize(
    "row", [rows.at_most("a: slow", 2.0, 1.0), rows.not_measured("a: none", 1.0, "at most", "nothing to measure with")]
)
def test_a_threshold_missed_or_not_measured_is_a_failure(monkeypatch: pytest.MonkeyPatch, row: Any) -> None:
    answer = bench(monkeypatch, rows.at_most("a: fast", 0.5, 1.0), row)
    assert answer.exit_code == 1


def test_without_its_environment_a_comparison_is_not_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    environments = _module("environments")

    def cannot(self: Any) -> str:
        raise environments.Unavailable("ERROR: no route to the package index")

    monkeypatch.setattr(environments.Environment, "python", cannot)
    found = [row for name in ("flower_ray", "pfl_research") for row in _module(name).rows(quick=False)]
    assert len(found) == 4
    assert all(row.limit is not None for row in found)
    assert all(row.value is None and "no route to the package index" in row.note for row in found)


def test_a_benchmark_that_breaks_off_loses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(quick: bool) -> Iterator[Any]:
        yield rows.at_most("broken: first", 0.5, 1.0)
        raise RuntimeError("no memory\nand more")

    def whole(quick: bool) -> Iterator[Any]:
        yield rows.at_most("whole: one", 0.5, 1.0)

    monkeypatch.setattr(suite, "BENCHMARKS", {"broken": broken, "whole": whole})
    answer = CliRunner().invoke(app, ["--json"])
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert [row["name"] for row in found["rows"]] == ["broken: first", "broken: the rest of it", "whole: one"]
    assert found["rows"][1]["note"] == "not measured: RuntimeError: no memory"
    assert list(found["by_benchmark"]) == ["broken", "whole"]


def test_the_explicit_search_keeps_what_herding_keeps() -> None:
    selection = _module("selection_probe")
    steps = selection.steps_like_training(24, 300)
    store = selection.hold(steps)
    assert selection.explicit_search(steps, 12) == herd(store.gram(), 12)
    assert selection.gram_error(store, steps) < 1e-6


def test_the_page_knows_the_topic_of_every_benchmark() -> None:
    assert set(suite.BENCHMARKS) == set(_module("page").HEADINGS)


def test_repeated_runs_show_each_rows_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.5, 0.3, 0.4])

    def measured(quick: bool) -> Iterator[Any]:
        yield rows.at_most("one: row", next(values), 1.0)

    monkeypatch.setattr(suite, "BENCHMARKS", {"one": measured})
    answer = CliRunner().invoke(app, ["--json", "--repeat", "3"])
    assert json.loads(answer.stdout)["spread"] == {"one: row": [0.3, 0.4, 0.5]}
