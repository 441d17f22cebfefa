"""The main job as one function: plan, run, analyse, write. The command line calls this and prints the answer."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ecgr.compare.analyse import analyse, is_finished, place_of
from ecgr.compare.plan import TRIALS, Grid, plan_comparison, reference_of
from ecgr.compare.run import announced, run_plan
from ecgr.compare.tune import Warn
from ecgr.config.experiment import changes_of
from ecgr.errors import ConfigError, QuorumLost
from ecgr.report.answer import Answer as Answer
from ecgr.runs.runner import AUTO, worker_count
from ecgr.runs.sweep import Progress, check_ready, run_all, settle
from ecgr.runs.trackers import TrackerEntry, check_tracker, entry_of
from ecgr.runs.trackers import track as track_entries

if TYPE_CHECKING:
    from ecgr.simulation.engines.ray import Cluster


def compare(
    source: Any = "quickstart",
    baseline: Any = None,
    *,
    methods: Sequence[Any] | None = None,
    seeds: int | str | Iterable[int] | None = None,
    rounds: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    tune: Grid | bool | None = None,
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
    trials: int = TRIALS,
    until_level: int | None = None,
    references: bool = True,
    workers: int | str = AUTO,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    out: str | Path | None = None,
    track: str | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Answer:
    """Make paired runs, analyse them, write what was found, and return it.

    >>> from tempfile import mkdtemp
    >>> small = {"partition.clients": 3, "federation.rounds": 1}
    >>> methods = ["fedavg", "fedavg+ecgr"]
    >>> quick = {"settings": small, "tune": False, "references": False, "engine": "serial", "out": mkdtemp()}
    >>> answer = compare("quickstart", methods=methods, seeds=2, **quick)
    >>> answer.pairs[0].method, answer.pairs[0].baseline, answer.pairs[0].seeds
    ('fedavg+ecgr', 'fedavg', (0, 1))
    >>> sorted(path.name for path in answer.directory.iterdir())
    ['comparison.csv', 'comparison.json', 'heads.json', 'plan.json', 'report.html', 'runs', 'summaries.json']
    >>> compare(answer.directory).to_json() == answer.to_json()
    True

    Args:
        source: a `Task`, an `Experiment`, a preset's name, a TOML file or a nested dict to be run; or what is finished
            and only analysed: a directory of runs, an iterable of records and directories, a ``summaries.json``.
        baseline: the method that the others are compared with; by default the first, and of runs without a plan
            ``fedavg``.
        methods: what is compared, as in ``["fedavg", "scaffold(damping=0.5)/lookahead+ecgr", MyAlgorithm()]``; by
            default FedAvg, FedAvgM with a momentum of 0.5, drift correction, and FedAvg with ECGR.
        seeds: how many, or which; 10 by default, which are 0 to 9.
        rounds: ``federation.rounds``.
        lr: ``optimizer.lr``.
        batch_size: ``federation.batch_size``.
        settings: any other dotted config keys, as in ``{"schedule.name": "cosine"}``.
        tune: every method, the baseline too, is tuned: its learning rate, its server step and one knob of its own.
            False leaves them as they are; values to choose from, as in ``{"optimizer.lr": [0.01, 0.03, 0.1]}``, are
            all tried instead.
        chosen: what tuning chose earlier, dotted keys by method: nothing is tuned again.
        trials: how many each method is tuned with.
        until_level: go on, doubling the rounds up to this number, until every method has levelled off.
        references: also train each of at most 20 clients alone, and one model on everybody's data (pooled): is
            federating worth it, and how much is left to gain? One that cannot be trained is left out.
        workers: processes that make runs, or ``auto``: one a core; the results do not depend on it.
        engine: ``pool`` (processes, the default), ``serial`` (everything in this one), ``ray``, or an
            `ecgr.simulation.engines.ray.Cluster`.
        device: where to compute.
        out: where runs and results lie; ``runs/compare-NAME`` by default. What is finished there is not run again.
            For finished runs: where the results go, by default into their directory, or nowhere if there are several.
        track: also writes every run and the answer for a tracker: ``mlflow``, ``wandb`` or ``tensorboard``.
        progress: shows the runs under way.
        warn: called with what a person should know, as that there is no page because the extra is missing.
    """
    changes = changes_of(settings, rounds=rounds, lr=lr, batch_size=batch_size)
    told, warn = warn is not None, cache(warn or (lambda line: None))  # tuning makes runs several times
    check_tracker(track)
    asked: dict[str, Any] = {"methods": methods, "seeds": seeds, "settings": changes, "tune": tune}
    asked["until_level"] = until_level
    if not is_finished(source):
        plan = plan_comparison(source, baseline, chosen=chosen, trials=trials, references=references, out=out, **asked)
        for line in plan.notes:
            warn(f"note: {line}")
        check_ready(plan.runs, engine=engine, device=device, partition=bool(plan.tuning))
        if told and not all(run.finished for run in (*plan.tuning, *plan.runs)):
            warn(announced(plan, worker_count(workers)))
        work: dict[str, Any] = {"workers": workers, "engine": engine, "device": device}
        how: dict[str, Any] = {"progress": progress, "warn": warn, "optional": reference_of}
        # that a method or a choice diverges is an answer, too
        make = partial(run_all, tolerated=QuorumLost.exit_code, **work, **how)
        plan = run_plan(plan, make, warn)
        answer = analyse(plan.directory).write(plan.directory, warn)
        settle([*plan.runs, *plan.tuning], scored_only=reference_of)
        return _tracked(answer, track)
    if given := [name for name, value in asked.items() if value]:
        raise ConfigError(f"{given[0]}: {source} is only analysed, not run; leave out {given[0]}")
    answer = analyse(source, baseline)
    place = Path(out) if out is not None else place_of(source)
    return answer if place is None else _tracked(answer.write(place, warn), track)


def _tracked(answer: Answer, tracker: str | None) -> Answer:
    """The same answer, which a tracker has as well, with the runs that it is from."""
    place = answer.directory
    if tracker is not None and place is not None:
        entries = [(entry_of(run.record, place, run.summary.method), run.rounds) for run in answer.runs]
        facts = {"baseline": answer.baseline, **{f"verdict {pair.method}": pair.verdict for pair in answer.pairs}}
        files = [place / name for name in ("comparison.json", "comparison.csv", "report.html")]
        there = tuple(file for file in files if file.is_file())
        track_entries(tracker, [(TrackerEntry("answer", place.resolve().name, place, facts, there), ()), *entries])
    return answer


class _Callable(ModuleType):
    """``ecgr.compare`` is the function, or this package where it was imported by path first: both can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Answer:
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
