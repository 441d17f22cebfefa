"""What a user waits for: from the command to the page, in seconds and in seconds of processor time, with its parts.

The command is run as it is. Then one run of each method is made again in this process, with stopwatches around its
parts, and counts for the rounds of all runs of that method, those for tuning too. Analysis and
page are made again from the finished runs. What is left is the start of processes, records and checkpoints.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.overhead import stopwatch
from benchmarks.rows import (
    ROOT,
    Row,
    at_most,
    environment,
    processor_seconds_of_children,
    seconds,
    shown,
    skipped,
)
from ecgr.compare.analyse import analyse
from ecgr.config.experiment import Experiment
from ecgr.runs import runner
from ecgr.runs.record import RunRecord
from ecgr.simulation import client
from ecgr.simulation.evaluate import EvaluationJob

ROUNDS = 5
DEMO = "ecgr demo"
MNIST = f"study/bases/mnist, {ROUNDS} rounds"
LIMITS = {DEMO: 1.56, MNIST: 1.62}
"""Of all processor time over that inside clients' own steps, with ten seeds: the start weighs more with fewer.

At most a fifth more than the most of six runs: 1.08 to 1.35, and 1.20 to 1.46.
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of processor time, by what they were spent on."""

    training: float
    regulation: float
    evaluation: float
    analysis: float = 0.0
    page: float = 0.0

    @property
    def known(self) -> float:
        return self.training + self.regulation + self.evaluation + self.analysis + self.page


PARTS = {
    "training": "clients' steps",
    "regulation": "recording and regulation",
    "evaluation": "evaluation",
    "analysis": "analysis",
    "page": "page",
}


def rows(quick: bool) -> Iterator[Row]:
    seeds = "2" if quick else "10"
    plain = ["--no-tune", "--no-references", "--seeds", seeds]
    methods = "fedavg,fedavgm(server_momentum=0.5),drift_correction,fedacg,fedavg+ecgr"
    yield from _verdict(DEMO, ["compare", "demo", "--methods", methods, *plain], quick)
    if "ECGR_DATA" not in os.environ:
        yield skipped(f"verdict: {MNIST}", "ECGR_DATA does not name a folder with MNIST")
        return
    command = [
        "compare",
        "study/bases/mnist",
        "--methods",
        "fedavg,fedavg+ecgr",
        "--no-tune",
        "--no-references",
        "--seeds",
        seeds,
    ]
    yield from _verdict(MNIST, [*command, "--set", f"federation.rounds={ROUNDS}"], quick)


def _verdict(name: str, command: list[str], quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "answer"
        own = [sys.executable, "-m", "ecgr", *command, "--workers", "2", "--out", str(out)]
        whole = [sys.executable, "-m", "benchmarks.counted", *own]
        before = processor_seconds_of_children()
        waited = seconds(lambda: subprocess.run(whole, cwd=ROOT, env=environment(), capture_output=True, check=True))
        processor = processor_seconds_of_children() - before
        records = [RunRecord.open(path.parent) for path in sorted(out.rglob("run.json"))]  # tuning, too
        cost = _taken_apart(records, Path(scratch))
        answers: list[Any] = []
        analysis = _processor_time(lambda: answers.append(analyse(out)))
        page = _processor_time(lambda: answers[0].write(Path(scratch) / "again", lambda _: None))
    cost = Cost(cost.training, cost.regulation, cost.evaluation, analysis, page)
    note = f"{processor:.1f} s, {len(records)} runs"
    claim, ratio = f"verdict: processor time / that of clients' steps, {name}", processor / cost.training
    yield shown(claim, ratio, note) if quick else at_most(claim, ratio, LIMITS[name], note)
    yield shown(f"verdict: seconds from command to page, {name}", waited, "by the clock; two workers")
    for part, words in PARTS.items():
        spent = getattr(cost, part)
        yield shown(f"verdict: {words}, share of the processor time, {name}", spent / processor, f"{spent:.1f} s")
    rest = processor - cost.known
    words = "start, aggregation, records, checkpoints"
    yield shown(f"verdict: {words}, share of the processor time, {name}", rest / processor, f"{rest:.1f} s")


def _taken_apart(records: Sequence[RunRecord], scratch: Path) -> Cost:
    """What all rounds of all runs cost, by those of one run of each method; a server's rule costs next to nothing."""
    by_method: dict[tuple[str, str], list[RunRecord]] = {}
    for record in records:
        method = record.config["algorithm"]["name"], record.config["regulator"]["name"]
        by_method.setdefault(method, []).append(record)
    training = regulation = evaluation = 0.0
    for method, own in by_method.items():
        experiment = Experiment.from_dict(own[0].config)
        with (
            stopwatch({client: ["train_client"]}) as clients,
            stopwatch() as inside,
            stopwatch({EvaluationJob: ["run"]}) as evaluated,
        ):
            runner.run(experiment, scratch / "-".join(method), engine="serial")
        times = sum(len(record.rounds) for record in own) / experiment.federation.rounds
        training += times * (sum(clients) - sum(inside))
        regulation += times * sum(inside)
        evaluation += times * sum(evaluated)
    return Cost(training, regulation, evaluation)


def _processor_time(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
