"""Is the classifier the problem, or are the features? An LDA head on the baseline's final models, where it is cheap.

``heads.json`` keeps what was found in the comparison's directory, so that nothing is computed twice.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ecgr.analysis.comparison import Comparison, Reference
from ecgr.analysis.curves import Estimate
from ecgr.analysis.summaries import RunSummary
from ecgr.compare.plan import ComparisonPlan
from ecgr.config.experiment import OWN
from ecgr.errors import EcgrError
from ecgr.files import write_atomically
from ecgr.runs.record import to_json
from ecgr.runs.sweep import PlannedRun

FILE = "heads.json"
MOST_FEATURES, MOST_SAMPLES = 2048, 20_000


def solve_heads(plan: ComparisonPlan) -> None:
    """Score an LDA head for each of the baseline's runs that has none in ``heads.json``."""
    path, method, rounds = plan.directory / FILE, plan.baseline.name, plan.rounds
    known = {each["run"]: each for each in _read(path) if each["rounds"] == rounds}
    missing = [run for run in plan.baseline.runs if run.finished and run.name not in known]
    if missing:
        scores = [*known.values()]
        scores += [{"run": r.name, "method": method, "rounds": rounds, "score": _score(r)} for r in missing]
        write_atomically(path, to_json(scores, indent=2))


def head_gain(directory: Path, found: Comparison) -> Reference | None:
    """What the heads gain over the baseline's own last layers; None where that is not known."""
    known = {(each["run"], each["rounds"], each["method"]): each["score"] for each in _read(directory / FILE)}
    both: list[tuple[RunSummary, float, float]] = []
    for run in found.runs:
        own, score = run.summary, known.get((run.record.directory.name, run.summary.rounds, found.baseline))
        if own.method == found.baseline and own.end is not None and score is not None:
            both.append((own, score, own.end))
    if not both:
        return None
    first = both[0][0]
    difference = Estimate.of([score - end for _, score, end in both], first.overlap)
    margin = first.metric.margin(fmean(end for *_, end in both)) or 0.0
    return Reference("LDA head", "", fmean(score for _, score, _ in both), difference, first.metric, margin)


def _read(path: Path) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = json.loads(path.read_bytes()) if path.is_file() else []
    return found


def _score(run: PlannedRun) -> float | None:
    """The first metric of a run's final model with an LDA head; None where it has none, or that is not cheap."""
    from safetensors.torch import load_file  # loads torch

    from ecgr.simulation.engines import SerialEngine
    from ecgr.simulation.evaluate import evaluate
    from ecgr.simulation.heads import collect_sums, last_layer, solved, with_head
    from ecgr.simulation.prepare import prepare

    if run.experiment.parts.keys() & {"head", "local"} or run.experiment.data.score == OWN:
        return None
    try:
        problem = prepare(run.experiment.replace({"head.name": "lda"}), run.experiment.source.load())
        if len(problem.train) > MOST_SAMPLES or last_layer(problem.model)[1].in_features > MOST_FEATURES:
            return None
        held, engine = load_file(run.directory / "model.safetensors"), SerialEngine(problem)
        params = problem.spec.flatten([held[name] for name in problem.spec.names])
        buffers = {name: held[name] for name in problem.shared_buffers(problem.model)}
        head = solved(problem, collect_sums(problem, engine, params, buffers).total)
        found = evaluate(problem, engine, with_head(problem, params, head), buffers)
    except EcgrError:  # not a classifier, or it does not end with a linear layer
        return None
    return found.metrics[problem.metrics[0].name]
