"""Many runs as one bar: what it shows is what lies in their directories."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ecgr
from ecgr.cli.console import SweepDisplay
from ecgr.runs.sweep import plan_runs
from support.runs import write_run


def test_the_bar_counts_runs_and_rounds_and_says_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods of two seeds: 6 rounds took 12 s, 18 are left."""
    now = [100.0]
    monkeypatch.setattr("ecgr.cli.console.time.monotonic", lambda: now[0])
    changes = [{"regulator.name": name, "run.seed": seed} for name in ("none", "ecgr") for seed in (0, 1)]
    plans = plan_runs([ecgr.load("quickstart", {**each, "federation.rounds": 6}) for each in changes], tmp_path)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = plan_runs(
        [ecgr.load("quickstart", {"run.seed": seed, "federation.rounds": 6}) for seed in range(20)], tmp_path
    )
    display = SweepDisplay(plans)
    for each in plans:
        display(each, 1)
        write_run(each.directory, regulator="none", seed=each.experiment.run.seed)
        display(each, 0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" of 20")[0] for line in lines] == [f"runs: {10 * tenth} %" for tenth in range(1, 11)]
    assert all(line.endswith("left") for line in lines[:-1])
