"""What a person sees: many runs as one bar, what to do next, the page in the browser."""

import webbrowser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ecgr
from ecgr.cli.comparing import open_page
from ecgr.cli.console import SweepDisplay
from ecgr.runs.sweep import PlannedRun, plan_runs
from support.runs import write_run


def planned(tmp_path: Path, seeds: int) -> list[PlannedRun]:
    changes = [{"run.seed": seed, "federation.rounds": 6, "regulator.name": "none"} for seed in range(seeds)]
    return plan_runs([ecgr.load("quickstart", each) for each in changes], tmp_path)


def test_the_bar_counts_runs_and_rounds_and_says_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four runs 6 rounds took 12 s, 18 are left."""
    now = [100.0]
    monkeypatch.setattr("ecgr.cli.console.time.monotonic", lambda: now[0])
    plans = planned(tmp_path, 4)
    display = SweepDisplay(plans)

    def shown() -> str:
        text = StringIO()
        Console(width=140, color_system=None, file=text).print(display)
        return text.getvalue()

    assert "0/4 runs" in shown()
    assert "left" not in shown()
    write_run(plans[0].directory, regulator="none", seed=0)
    now[0] = 112.0
    assert "1/4 runs" in shown()
    assert "about 36 s left" in shown()


def test_when_piped_a_line_every_tenth_says_how_far_and_how_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = planned(tmp_path, 20)
    display = SweepDisplay(plans)
    for each in plans:
        display(each, 1)
        write_run(each.directory, regulator="none", seed=each.experiment.run.seed)
        display(each, 0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" of 20")[0] for line in lines] == [f"runs: {10 * tenth} %" for tenth in range(1, 11)]
    assert all(line.endswith("left") for line in lines[:-1])


def test_a_page_opens_in_the_browser_or_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)  # which says nothing, as where there is no browser
    open_page(page)
    assert opened == []
    page.touch()
    open_page(page)
    assert opened == [page.as_uri()]
    told = " ".join(capsys.readouterr().err.split())
    assert "no page" in told
    assert "no browser" in told
