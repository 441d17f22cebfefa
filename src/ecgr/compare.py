"""The main job as one function: plan, run, judge, write. The command line calls exactly this and prints the answer."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ecgr.analysis.arms import read_runs, summaries_of
from ecgr.analysis.collect import Run, find_runs
from ecgr.analysis.comparison import Comparison
from ecgr.analysis.comparison import compare as judge
from ecgr.analysis.length import FACTORS, FIRST_FACTORS, missing_factors
from ecgr.analysis.material import Material, design_of, runs_in
from ecgr.analysis.metrics import RunSummary, last5
from ecgr.analysis.power import power_of_design
from ecgr.analysis.summaries import read_summaries
from ecgr.analysis.tuning import Choice, Scored, choose
from ecgr.config.experiment import changes_of
from ecgr.config.user_files import presets
from ecgr.errors import ConfigError, QuorumLost
from ecgr.files import write_atomically
from ecgr.report.answer import Answer as Answer
from ecgr.report.answer import write_comparison as write_comparison
from ecgr.runs.design import LENGTH, Design
from ecgr.runs.paired import Arm, longer
from ecgr.runs.plan import TUNING_SEEDS, VALIDATION, Grid, Plan, plan_comparison, trials
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.sweep import Planned, Progress, check_ready, plan, run_all
from ecgr.runs.workers import AUTO

if TYPE_CHECKING:
    from ecgr.simulation.engines.ray import Cluster

Warn = Callable[[str], None]
OPTIONS = {"settings": "set"}
"""What the command line calls otherwise."""
Make = Callable[..., None]
"""Makes the runs that are left of some plans."""


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
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    tune: Grid | None = None,
    length: bool | None = None,
    treatment: Sequence[str] = (),
    workers: int | str = AUTO,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Answer:
    """Make paired runs, judge them, write what was found, and return it.

    >>> from tempfile import mkdtemp
    >>> small = {"partition.clients": 3, "federation.rounds": 1}
    >>> methods = ["fedavg", "fedavg+ecgr"]
    >>> answer = compare("quickstart", methods=methods, seeds=2, settings=small, out=mkdtemp(), engine="serial")
    >>> answer.pairs[0].method, answer.pairs[0].baseline_method, answer.pairs[0].seeds
    ('fedavg+ecgr', 'fedavg', (0, 1))
    >>> sorted(path.name for path in answer.directory.iterdir())
    ['comparison.csv', 'comparison.json', 'design.json', 'report.html', 'runs', 'summaries.json']
    >>> compare(answer.directory).to_json() == answer.to_json()
    True

    Args:
        source: a `Task`, an `Experiment`, a preset's name, a TOML file or a nested dict to be run; or what is finished
            and only compared: a directory of runs, an iterable of records and directories, a ``summaries.json``.
        baseline: the method that the others are compared with, by default the first; without ``methods`` the regulator
            ``none``.
        methods: what is compared, as in ``["fedavg", "scaffold(damping=0.5)/lookahead+ecgr", MyAlgorithm()]``.
        seeds: how many, or which; 10 by default, which are 0 to 9.
        rounds: ``federation.rounds``.
        lr: ``optimizer.lr``.
        batch_size: ``federation.batch_size``.
        settings: any other dotted config keys, as in ``{"schedule.name": "cosine"}``.
        regulators: instead of ``methods``: regulators to be compared with ``none``.
        algorithms: the regulators are compared under each of these.
        tune: values to choose from for each method, the baseline too, as in ``{"optimizer.lr": [0.01, 0.03, 0.1]}``.
        length: also run the baseline at other lengths of the server's step, to tell direction from length: the whole
            curve, or never. By default as far as the methods go, where ``methods`` are compared and one of them is
            better or worse.
        treatment: config keys that are compared as regulators are.
        workers: processes that make runs, or ``auto``: one a core; the results do not depend on it.
        engine: ``pool`` (processes, the default), ``serial`` (everything in this one), ``ray``, or an
            `ecgr.simulation.engines.ray.Cluster`.
        device: where to compute.
        out: where runs and results lie; ``runs/compare-NAME`` by default. What is finished there is not run again.
            For finished runs: where the results go, by default into their directory, or nowhere if there are several.
        progress: shows the runs under way.
        warn: called with what a person should know, as that there is no page because the extra is missing.
    """
    treatment = (treatment,) if isinstance(treatment, str) else treatment
    asked: dict[str, Any] = {
        "methods": methods,
        "seeds": seeds,
        "settings": changes_of(settings, rounds=rounds, lr=lr, batch_size=batch_size),
        "regulators": regulators,
        "algorithms": algorithms,
        "tune": tune,
    }
    material = made_already(source)
    if material is None:
        planned = plan_comparison(source, baseline, treatment=treatment, out=out, **asked)
        check_ready(planned.runs, engine=engine, device=device)
        make = partial(run_all, workers=workers, engine=engine, device=device, progress=progress)
        briefly = length is None and methods is not None
        return run_comparison(planned, make, length=bool(length), briefly=briefly, warn=warn or _ignore)
    if given := [name for name, value in {**asked, "length": length}.items() if value]:
        option = OPTIONS.get(given[0], given[0])
        raise ConfigError(f"--{option}: {source} is only compared, not run; leave out --{option}")
    design = design_of(material, baseline, treatment)
    answer = conclude(material, design)
    place = material.directory if out is None else Path(out)
    return answer if place is None else answer.write(place, warn or _ignore)


def power_of_plan(planned: Plan) -> str:
    """What this number of seeds and comparisons can show at all."""
    return power_of_design(len(planned.seeds), len(planned.arms) - len(planned.baselines)).sentence


def run_comparison(planned: Plan, make: Make, *, length: bool, warn: Warn, briefly: bool = False) -> Answer:
    """Tune, run, judge, measure lengths and write, as far as it is not done yet."""
    if not all(run.finished for run in planned.runs):
        warn(power_of_plan(planned))
    if planned.grid:
        planned = tune_arms(planned, make, warn)
    runs = planned.runs
    baselines = planned.baseline_runs
    # A method that diverges is an answer, too; without a baseline there is none.
    make(runs, tolerated=(QuorumLost.exit_code,), needed={run.name for run in baselines})
    _refuse_diverged(baselines)
    material = Material(find_runs(run.directory for run in runs), directory=planned.directory)
    design = replace(planned.design, runs=tuple(run.name for run in runs))
    answer = conclude(material, design)
    decided = any(pair.verdict in ("better", "worse") for pair in answer.pairs)
    if length or (briefly and decided):
        factors = FACTORS if length else FIRST_FACTORS
        answer, curves = measure_lengths(planned, material, answer, make, factors)
        design = replace(design, length=tuple(run.name for run in curves))
    answer = answer.write(planned.directory, warn)
    design.write(planned.directory)
    return answer


def tune_arms(planned: Plan, make: Make, warn: Warn) -> Plan:
    """The plan with the best hyper-parameters of each arm; every trial stays, in ``tuning.json`` and as runs."""
    warn(f"note: {planned.budget}")
    make(planned.tuning, tolerated=(QuorumLost.exit_code,))  # a choice that diverges has been tried, too
    choices = [_choice(planned, arm) for arm in planned.arms]
    for arm, choice in zip(planned.arms, choices, strict=True):
        if arm in planned.baselines and not choice.trained:
            raise ConfigError(
                f"--tune: no choice of hyper-parameters for {arm.name} could be trained; try smaller values"
            )
    for line in [line for choice in choices for line in choice.warnings]:
        warn(f"note: {line}")
    content = {
        "keys": list(planned.grid),
        "seeds": list(TUNING_SEEDS),
        "validation": VALIDATION,
        "budget": planned.budget,
        "methods": [choice.to_json() for choice in choices],
    }
    write_atomically(planned.directory / "tuning.json", to_json(content, indent=2))
    arms = [
        replace(arm, changes={**arm.changes, **choice.best}) for arm, choice in zip(planned.arms, choices, strict=True)
    ]
    return replace(planned, arms=arms, grid={})


def measure_lengths(
    planned: Plan, material: Material, answer: Answer, make: Make, factors: Sequence[float] = FACTORS
) -> tuple[Answer, Sequence[Planned]]:
    """The answer with the baselines' length curves, extended until they cover the methods or reach their limit."""
    curves: dict[str, Planned] = {}
    while missing := missing_factors(answer.pairs, answer.comparison.curves, factors):
        longer_runs = [
            arm.experiment(planned.raw, {"run.seed": seed, **longer(arm, planned.raw, factor)})
            for arm in planned.baselines
            for factor in missing
            for seed in planned.seeds
        ]
        new = {run.name: run for run in plan(longer_runs, planned.directory, LENGTH) if run.name not in curves}
        if not new:
            break
        make(list(new.values()), tolerated=(QuorumLost.exit_code,))  # a step that is too long may diverge
        curves |= new
        material = replace(material, length=find_runs(run.directory for run in curves.values() if run.finished))
        answer = conclude(material, planned.design)
    return answer, [run for run in curves.values() if run.finished]


def conclude(material: Material, design: Design) -> Answer:
    """The answer that the material gives."""
    runs: list[Run] = []
    if material.records:
        runs = read_runs(material.records, design.treatment, tuned=design.tuned, length=material.length)
    summaries = list(material.summaries) or summaries_of(runs)
    if not summaries:
        raise ConfigError("compare: none of the runs is finished")
    comparison = judge(summaries, design.baseline, design.by)
    _refuse_empty(comparison, summaries)
    return Answer(comparison, summaries, runs)


def is_made(source: Any) -> bool:
    """Whether ``source`` names runs or summaries rather than something to be run; a preset hides a directory."""
    if not isinstance(source, (str, Path)):
        return isinstance(source, Iterable) and not isinstance(source, Mapping)
    path = Path(source)
    return str(source) not in presets() and (path.is_dir() or (path.suffix == ".json" and path.is_file()))


def made_already(source: Any) -> Material | None:
    """The runs or summaries that ``source`` names; None if it is something to be run."""
    if isinstance(source, RunRecord):
        return Material([source])
    if not is_made(source):
        return None
    if not isinstance(source, (str, Path)):
        entries = [[entry] if isinstance(entry, RunRecord) else runs_in(Path(entry)).records for entry in source]
        return Material([record for records in entries for record in records])
    path = Path(source)
    return runs_in(path) if path.is_dir() else Material(summaries=read_summaries(path), directory=path.parent)


def _choice(planned: Plan, arm: Arm) -> Choice:
    """The best trial of an arm, by the mean of the primary metric's last rounds on the validation data."""
    scored, quantity = [], None
    for trial in trials(planned.raw, arm, planned.grid):
        scores: dict[int, float | None] = {}
        for place in planned.places(trial):
            summary = None
            if place.finished:
                (run,) = read_runs([RunRecord.open(place.directory)])
                summary = run.summary
                quantity = summary.metric
            scores[place.experiment.run.seed] = None if summary is None else last5(summary)
        scored.append(Scored(trial.values, scores))
    return choose(arm.name, scored, quantity) if quantity is not None else choose(arm.name, scored)


def _refuse_diverged(baselines: Sequence[Planned]) -> None:
    """With a baseline that has no end there is nothing to compare with."""
    if lost := [run for run in baselines if not run.finished]:
        first = next((run for run in lost if run.diverged is not None), lost[0])
        lr = first.experiment.optimizer.lr
        rates = ",".join(f"{lr / factor:g}" for factor in (100, 30, 10))
        raise QuorumLost(
            f"compare: the baseline diverged with seed {first.experiment.run.seed} at optimizer.lr = {lr:g}, and the"
            f" others were not run any further: there is nothing to compare with; try --set optimizer.lr={lr / 10:g},"
            f" or find a rate with --tune optimizer.lr={rates} ({first.name}: {first.diverged})"
        )


def _refuse_empty(comparison: Comparison, summaries: Sequence[RunSummary]) -> None:
    if not any(pair.seeds for pair in comparison.pairs):
        arms = "; ".join(dict.fromkeys(f"{run.algorithm}, {run.regulator}" for run in summaries))
        methods = dict.fromkeys(run.method for run in summaries)
        advice = f"; methods are compared by --baseline with one of {', '.join(methods)}" if len(methods) > 1 else ""
        what = f"no seed has {comparison.baseline} and another ({arms})"
        raise ConfigError(f"compare: nothing to compare: {what}{advice}")


def _ignore(_: str) -> None:
    """Nobody listens."""


class _Callable(ModuleType):
    """``ecgr.compare`` is the function, or this module where somebody imported it by path first: both can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Answer:
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
