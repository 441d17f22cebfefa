"""What a user waits for: from the command to the page, in seconds and in seconds of processor time, with its parts.

The parts of training are those that the runs' own records say, clients in workers of one thread each; analysis and page
are made once more from the finished runs. What is left is the start of processes, records and checkpoints.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import ROOT, Row, at_most, environment, seconds, shown, skipped
from ecgr.analysis.material import runs_in
from ecgr.compare import conclude, design_of
from ecgr.runs.record import RunRecord

ROUNDS = 10
MNIST = f"10 seeds of fedavg and fedavg+ecgr on study/bases/mnist, {ROUNDS} of its 100 rounds"
DEMO = "ecgr demo"
LIMITS = {DEMO: 2.5, MNIST: 1.5}
"""Of processor time over that inside local training alone."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds from command to page; all but the first are of processor time."""

    seconds: float
    processor: float
    runs: int
    training: float
    regulation: float
    evaluation: float
    analysis: float
    page: float

    @property
    def start(self) -> float:
        """What no record names: imports, set-up, records, checkpoints."""
        named = self.training + self.regulation + self.evaluation + self.analysis + self.page
        return self.processor - named


def rows(quick: bool) -> Iterator[Row]:
    yield from _shown(DEMO, ["demo", *(["--seeds", "2"] if quick else [])])
    if "ECGR_DATA" not in os.environ:
        yield skipped(f"verdict: {MNIST}", "ECGR_DATA does not name a folder with MNIST")
        return
    methods = ["--methods", "fedavg,fedavg+ecgr", "--no-length", "--seeds", "2" if quick else "10"]
    yield from _shown(MNIST, ["compare", "study/bases/mnist", *methods, "--set", f"federation.rounds={ROUNDS}"])


def _shown(name: str, command: list[str]) -> Iterator[Row]:
    cost = measured(command)
    yield at_most(
        f"verdict: processor time / that inside local training, {name}",
        cost.processor / cost.training,
        LIMITS[name],
        f"{cost.processor:.1f} s, {cost.runs} runs",
    )
    yield shown(f"verdict: seconds from command to page, {name}", cost.seconds, "by the clock, two workers")
    for part in ("training", "regulation", "evaluation", "analysis", "page", "start"):
        share = getattr(cost, part) / cost.processor
        yield shown(f"verdict: {PARTS[part]}, share, {name}", share, f"{getattr(cost, part):.1f} s")


PARTS = {
    "training": "local training",
    "regulation": "recording and regulation",
    "evaluation": "aggregation and evaluation",
    "analysis": "analysis",
    "page": "page",
    "start": "start, records, checkpoints",
}


def measured(command: list[str]) -> Cost:
    """Run a command of `ecgr` that compares, in a new directory, and take its records apart."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "answer"
        whole = [sys.executable, "-m", "ecgr", *command, "--workers", "2", "--out", str(out)]
        before = _processor_time()
        taken = seconds(lambda: subprocess.run(whole, cwd=ROOT, env=environment(), capture_output=True, check=True))
        processor = _processor_time() - before
        material = runs_in(out)
        records = [*material.records, *material.length]
        clients = [client for record in records for row in record.rounds for client in row["clients"]]
        regulation = sum(client.get("regulation_seconds", 0.0) for client in clients)
        inside = sum(client["seconds"] for client in clients)
        answers = []
        analysis = seconds(lambda: answers.append(conclude(material, design_of(material, None, ()))))
        return Cost(
            seconds=taken,
            processor=processor,
            runs=len(records),
            training=inside - regulation,
            regulation=regulation,
            evaluation=_rounds(records) - inside,
            analysis=analysis,
            page=seconds(lambda: answers[0].write(out / "again", lambda _: None)),
        )


def _rounds(records: list[RunRecord]) -> float:
    return sum(row["seconds"] for record in records for row in record.rounds)


def _processor_time() -> float:
    """Of all children that have ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
