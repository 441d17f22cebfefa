"""What the command line says to do next."""

import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ecgr.analysis.pairs import HEADLINE_PAIRS, Pair
from ecgr.analysis.summaries import RunSummary
from ecgr.analysis.verdicts import compare
from ecgr.cli.app import run_command_line
from ecgr.cli.comparing import MOST_SEEDS, next_step, open_page


def pair_of(gains: Sequence[float]) -> Pair:
    runs = [
        run
        for seed, gain in enumerate(gains)
        for run in (
            RunSummary("fedavg", seed, (0.4, 0.5 + seed / 100)),
            RunSummary("fedavg+ecgr", seed, (0.4, 0.5 + seed / 100 + gain)),
        )
    ]
    return compare(runs).pairs[0]


OPEN = pair_of([0.03, -0.01, 0.02, 0.01, -0.005, 0.02, 0.015, 0.01, -0.01, 0.02])
COMMAND = ["compare", "quickstart", "--seeds", "10"]


def test_more_seeds_come_as_the_command_that_was_given() -> None:
    assert OPEN.verdict == "inconclusive"
    assert OPEN.seeds_needed is not None
    assert 10 < OPEN.seeds_needed <= MOST_SEEDS
    assert next_step([OPEN], COMMAND).endswith(f"ecgr compare quickstart --seeds {OPEN.seeds_needed}")


def test_too_few_seeds_are_never_asked_for_again() -> None:
    for gains in ([0.2, 0.21, 0.2, 0.19, 0.2], [0.01]):
        few = pair_of(gains)
        assert few.verdict == "too few seeds"
        assert int(next_step([few, OPEN], COMMAND).rsplit(" ", 1)[1]) == HEADLINE_PAIRS


def test_a_difference_that_no_number_of_seeds_would_show_is_left() -> None:
    assert "nothing to gain" in next_step([replace(OPEN, seeds_needed=MOST_SEEDS + 1)], COMMAND)
    assert "nothing to gain" in next_step([replace(OPEN, seeds_needed=None)], COMMAND)


def test_where_all_is_decided_nothing_is_asked() -> None:
    assert next_step([replace(OPEN, verdict="better")], COMMAND) == ""


def test_the_command_alone_says_three_things_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ecgr"])
    assert run_command_line() == 0
    printed = capsys.readouterr().out
    assert all(f" ecgr {name}" in printed for name in ("demo", "compare", "list"))


def test_a_page_opens_in_the_browser_or_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    open_page(page)
    assert opened == []
    page.touch()
    open_page(page)
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    open_page(page)
    told = " ".join(capsys.readouterr().err.split())
    assert "no page" in told
    assert "no browser" in told
