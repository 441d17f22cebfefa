"""The benchmarks' own arithmetic: what counts as met, what the command answers, and that every claim has its row."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
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


def test_all_met_is_success(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = bench(monkeypatch, rows.at_most("a: fast", 0.5, 1.0), rows.shown("a: beside it", 7.0))
    assert answer.exit_code == 0
    assert "1 of 1 thresholds met" in answer.stdout


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


def test_repeated_runs_show_each_rows_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.5, 0.3, 0.4])

    def measured(quick: bool) -> Iterator[Any]:
        yield rows.at_most("one: row", next(values), 1.0)

    monkeypatch.setattr(suite, "BENCHMARKS", {"one": measured})
    answer = CliRunner().invoke(app, ["--json", "--repeat", "3"])
    assert json.loads(answer.stdout)["spread"] == {"one: row": [0.3, 0.4, 0.5]}


def test_the_bare_loop_keeps_the_layout_of_its_parameters() -> None:
    convolution = torch.nn.Conv2d(3, 4, 5).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    vector = torch.arange(304.0)
    _module("bare_loop").load(vector, list(convolution.parameters()))
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.cat([p.detach().reshape(-1) for p in convolution.parameters()]), vector)


def test_the_explicit_search_keeps_what_herding_keeps() -> None:
    selection, explicit, made = _module("selection_probe"), _module("explicit_search"), _module("steps")
    steps = made.steps_like_training(24, 300)
    store = made.hold(steps)
    assert explicit.explicit_search(steps, 12) == herd(store.gram(), 12)
    assert selection.gram_error(store, steps) < 1e-6


def test_the_stopwatch_leaves_the_recorder_as_it_was() -> None:
    from ecgr.core.recorder import Recorder

    overhead = _module("overhead")
    before = {name: getattr(Recorder, name) for name in overhead.INSIDE}
    with overhead.stopwatch(), pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError
    assert {name: getattr(Recorder, name) for name in overhead.INSIDE} == before


def test_the_page_has_every_row_its_commit_and_its_command() -> None:
    page = _module("page")
    facts: dict[str, Any] = dict.fromkeys(("date", "cores", "processor", "python", "torch", "seconds"), "?")
    facts |= {"commit": "abc123", "by_benchmark": {"selection": 3}}
    names = [f"{topic}: something" for topic in page.HEADINGS]
    text = page.page(
        [rows.at_most(name, 0.5, 1.0) for name in names[1:]] + [rows.at_most(names[0], 2.0, 1.0)],
        facts,
        {10: 0.1},
        False,
    )
    assert "`python -m benchmarks --figures`" in text
    assert "`abc123`" in text
    assert f"**{len(names) - 1} of {len(names)} thresholds met.**" in text
    assert text.count("| something |") == len(names)
    assert text.count("**no**") == 1


def test_the_page_knows_the_topic_of_every_benchmark() -> None:
    assert set(suite.BENCHMARKS) == set(_module("page").HEADINGS)


def test_memory_probe_code_runs_on_every_store() -> None:
    torch.manual_seed(0)
    _module("memory_probe").load_code()


def test_what_runs_would_take_on_gpus_by_hand() -> None:
    """A round of 100 s, one of them the server's: 99 / 99 + 1 = 2 s; 1,000 runs of 36 rounds on 10 GPUs: 2 h."""
    projection = _module("projection")
    measured = projection.Round(steps=90.0, regulation=1.0, scoring=8.0, server=1.0)
    assert measured.on_gpu(99) == pytest.approx(2.0)
    assert projection.hours(2.0, rounds=36, runs=1000, workers=10) == pytest.approx(2.0)
    assert projection.hours(2.0, rounds=36, runs=5, workers=10) == pytest.approx(0.02)  # no shorter than one run
    assert projection.shown(1348.2) == "1,300 h"
