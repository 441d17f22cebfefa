"""Many runs as one bar: what it shows is what lies in their directories."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ecgr
from ecgr.cli.console import SweepDisplay
from ecgr.runs.sweep import Planned, plan
from support.runs import write_run


@pytest.fixture
def plans(tmp_path: Path) -> list[Planned]:
    """Two arms of two seeds."""
    experiments = [
        ecgr.load("quickstart", {"regulator.name": regulator, "run.seed": seed, "federation.rounds": 6})
        for regulator in ("none", "ecgr")
        for seed in (0, 1)
    ]
    return plan(experiments, tmp_path)


def finish(planned: Planned, gain: float = 0.0) -> None:
    config = planned.experiment.to_dict()
    write_run(planned.directory, regulator=config["regulator"]["name"], seed=planned.experiment.run.seed, gain=gain)


def shown(display: SweepDisplay) -> str:
    text = StringIO()
    Console(width=140, color_system=None, file=text).print(display)
    return text.getvalue()


def test_the_bar_counts_runs_and_rounds_and_says_how_long(
    plans: list[Planned], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("ecgr.cli.console.time.monotonic", lambda: now[0])
    display = SweepDisplay(plans)
    assert "0/4 runs" in shown(display)
    assert "left" not in shown(display)
    finish(plans[0])
    now[0] = 112.0
    assert "1/4 runs" in shown(display)
    assert "about 36 s left" in shown(display)  # 6 rounds took 12 s, 18 are left
