"""What a process that trains does not load, and how many processes there are."""

import subprocess
import sys
from pathlib import Path

import pytest

from ecgr.config.experiment import load
from ecgr.runs.sweep import plan_runs, run_all
from ecgr.simulation.engines.pool import ProcessPool, Worker

NEVER = {
    "a compiler": ("torch._dynamo", "torch._inductor", "sympy", "numba"),
    "statistics": ("scipy", "sklearn", "pandas"),
    "pages and pictures": ("plotly", "matplotlib", "jinja2", "PIL", "tensorboard", "IPython"),
    "other machines": ("flwr", "grpc", "ray", "httpx", "requests", "cryptography"),
}
"""What takes long to load, by what training a model does not need."""

SMALL = {"federation.rounds": 1, "partition.clients": 2, "data.fraction": 0.2}

LOADED = f"[name for name in {[name for names in NEVER.values() for name in names]} if name in sys.modules]"


@pytest.mark.slow
def test_a_process_that_trains_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """Regulated rounds in this process and in a worker, which answers with what it has loaded."""
    script = f"""
import sys
from dataclasses import dataclass
import ecgr
from ecgr.config.experiment import load
from ecgr.simulation.engines import open_engine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import play_round, start

@dataclass
class Ask:
    cost: int = 1
    def run(self, workspace):
        import sys
        return {LOADED}

ecgr.run("quickstart", {str(tmp_path)!r}, settings={SMALL!r})
experiment = load("quickstart", {SMALL!r})
problem = prepare(experiment, experiment.source.load())
with open_engine(problem, 1, "pool") as engine:
    play_round(problem, engine, start(problem))
    print({LOADED}, *engine.map([Ask()]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] []"


@pytest.mark.nightly
def test_the_runs_of_a_sweep_share_their_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, begin = [], ProcessPool._start

    def counted(pool: "ProcessPool[object]") -> Worker:
        begun.append(1)
        return begin(pool)

    monkeypatch.setattr(ProcessPool, "_start", counted)
    plans = plan_runs([load("quickstart", {**SMALL, "run.seed": seed}) for seed in range(3)], tmp_path)
    run_all(plans, workers=1)
    assert all(planned.finished for planned in plans)
    assert len(begun) == 1
