"""What finished runs say: from a comparison's directory, any other runs, or their summaries to the answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ecgr.analysis.comparison import REFERENCES, Comparison, compare, default_baseline
from ecgr.analysis.records import Run, find_runs, read_runs
from ecgr.analysis.summaries import RunSummary, read_summaries
from ecgr.compare.diagnosis import head_gain
from ecgr.compare.plan import planned_records, tuning_of
from ecgr.config.experiment import presets
from ecgr.errors import ConfigError
from ecgr.report.answer import Answer
from ecgr.runs.record import RunRecord


def is_finished(source: Any) -> bool:
    """Whether ``source`` names runs or summaries rather than something to be run; a preset hides a directory."""
    if not isinstance(source, (str, Path)):
        return isinstance(source, RunRecord) or (isinstance(source, Iterable) and not isinstance(source, Mapping))
    path = Path(source)
    return str(source) not in presets() and (path.is_dir() or (path.suffix == ".json" and path.is_file()))


def place_of(source: Any) -> Path | None:
    """The directory of finished runs or of their summaries: their answer lies there, too."""
    if not isinstance(source, (str, Path)):
        return None
    return Path(source).parent if Path(source).is_file() else Path(source)


def analyse(source: Any, baseline: str | None = None) -> Answer:
    """The answer that a directory, records, or a ``summaries.json`` gives; refused where nothing can be compared."""
    if isinstance(source, (str, Path)) and Path(source).is_file():
        summaries = read_summaries(Path(source))
        _refuse_unknown(baseline, summaries)
        found = compare(summaries, baseline)
    else:
        found = analyse_runs(source, baseline)
    if not found.summaries:
        raise ConfigError("compare: none of the runs is finished")
    if not any(pair.seeds or pair.failed for pair in found.pairs):
        methods = ", ".join(dict.fromkeys(run.method for run in found.summaries))
        raise ConfigError(f"compare: nothing to compare: no seed has {found.baseline} and another of {methods}")
    place = place_of(source)
    tuning = found.tuning or (tuning_of(place) if place is not None and found.tuned else {})
    head = None if place is None else head_gain(place, found)
    return Answer(found.baseline, found.pairs, found.references, found.summaries, found.runs, tuning=tuning, head=head)


def analyse_runs(source: Any, baseline: str | None = None) -> Comparison:
    """The comparison of those among some runs that ended; a diverged one has no number at its end.

    A comparison's directory is read by its plan; where there are several, each is a setting of its own. Runs without a
    plan go by their records alone.
    """
    places = [source] if isinstance(source, (str, Path, RunRecord)) else list(source)
    runs: list[Run] = []
    loose: list[RunRecord] = []
    tuning: dict[str, Any] = {}
    for place in places:
        plan = None if isinstance(place, RunRecord) else planned_records(Path(place))
        if plan is None:
            loose += [place] if isinstance(place, RunRecord) else find_runs([Path(place)])
            continue
        planned, tuned, named = plan
        baseline = baseline or planned
        tuning |= tuning_of(Path(place)) if tuned else {}  # type: ignore[arg-type]
        methods, records = [method for method, _ in named], [record for _, record in named]
        runs += read_runs(records, methods, setting=str(place) if len(places) > 1 else "", tuned=tuned)
    runs += read_runs(loose) if loose or not runs else []
    summaries = [run.summary for run in runs]
    _refuse_unknown(baseline, summaries)
    ended = [run.summary for run in runs if run.state in ("finished", "diverged")]
    found = compare(ended, baseline or default_baseline(summaries))
    return replace(found, runs=[run for run in runs if run.summary.method not in REFERENCES], tuning=tuning)


def _refuse_unknown(baseline: str | None, runs: Sequence[RunSummary]) -> None:
    methods = dict.fromkeys(run.method for run in runs)
    if baseline is not None and baseline not in methods:
        raise ConfigError(f"baseline: no run of {baseline}; the methods are {', '.join(methods)}")
