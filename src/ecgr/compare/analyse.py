"""What finished runs say: from a comparison's directory, any other runs, or their summaries to the answer."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.analysis.records import Run, find_runs, read_runs
from ecgr.analysis.summaries import RunSummary, read_summaries
from ecgr.analysis.verdicts import Comparison, compare, default_baseline
from ecgr.compare.plan import planned_records
from ecgr.config.experiment import presets
from ecgr.errors import ConfigError, DataError
from ecgr.report.answer import Answer
from ecgr.runs.record import RunRecord


def is_finished(source: Any) -> bool:
    """Whether ``source`` names runs or summaries rather than something to be run; a preset hides a directory."""
    if not isinstance(source, (str, Path)):
        return isinstance(source, RunRecord) or (isinstance(source, Iterable) and not isinstance(source, Mapping))
    path = Path(source)
    return str(source) not in presets() and (path.is_dir() or (path.suffix == ".json" and path.is_file()))


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
    if not any(pair.seeds for pair in found.pairs):
        methods = ", ".join(dict.fromkeys(run.method for run in found.summaries))
        raise ConfigError(f"compare: nothing to compare: no seed has {found.baseline} and another of {methods}")
    return Answer(found.baseline, found.pairs, found.summaries, found.runs)


def analyse_runs(source: Any, baseline: str | None = None) -> Comparison:
    """The comparison of those among some runs that ended; a diverged one has no number at its end.

    A comparison's directory is read by its plan. Of runs from several places, the method's name is all that is known.
    """
    places = [source] if isinstance(source, (str, Path, RunRecord)) else list(source)
    plans = [None if isinstance(place, RunRecord) else planned_records(Path(place)) for place in places]
    first = plans[0] if plans else None
    runs: Sequence[Run]
    if len(plans) == 1 and first is not None:
        runs = read_runs([record for _, record in first[1]], [method for method, _ in first[1]])
    else:
        runs = read_runs([record for each in zip(places, plans, strict=True) for record in _records(*each)])
    summaries = [run.summary for run in runs]
    _refuse_unknown(baseline, summaries)
    found = compare(_ended(runs), baseline or (first[0] if first is not None else default_baseline(summaries)))
    return Comparison(found.baseline, found.pairs, found.summaries, runs)


def _records(place: Any, plan: tuple[str, list[tuple[str, RunRecord]]] | None) -> list[RunRecord]:
    if isinstance(place, RunRecord):
        return [place]
    if plan is not None:
        return [record for _, record in plan[1]]
    if (Path(place) / "design.json").is_file():
        raise DataError(f"{place}: a comparison of an earlier version; give its command again, which keeps its runs")
    return find_runs([place])


def _refuse_unknown(baseline: str | None, runs: Sequence[RunSummary]) -> None:
    methods = dict.fromkeys(run.method for run in runs)
    if baseline is not None and baseline not in methods:
        raise ConfigError(f"baseline: no run of {baseline}; the methods are {', '.join(methods)}")


def _ended(runs: Sequence[Run]) -> list[RunSummary]:
    return [run.summary for run in runs if run.state in ("finished", "diverged")]
