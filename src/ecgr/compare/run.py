"""Make what is missing of a plan: the choice of hyper-parameters, and the runs that are compared."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ecgr.analysis.comparison import REFERENCES
from ecgr.compare.analyse import analyse_runs
from ecgr.compare.diagnosis import solve_heads
from ecgr.compare.plan import ALONE_TUNED, FIRST_SEEDS, TUNING_SEEDS, ComparisonPlan
from ecgr.compare.tune import FINALISTS, Make, Warn, tune
from ecgr.errors import EcgrError, QuorumLost
from ecgr.runs.record import RunRecord
from ecgr.runs.sweep import PlannedRun, duration


def run_plan(plan: ComparisonPlan, make: Make, warn: Warn) -> ComparisonPlan:
    """Tune and run, as far as it is not done yet, and keep the plan, as it is then, beside the runs."""
    if not all(run.finished for run in plan.runs):
        warn(plan.power)
    if plan.tuning:
        plan = tune(plan, make, warn)
    plan = _make_runs(plan, make, warn)
    while plan.until is not None and plan.rounds < plan.until and not levelled(plan):
        before, plan = plan.rounds, plan.with_runs({"federation.rounds": min(plan.until, 2 * plan.rounds)})
        warn(f"note: not levelled off after {before} rounds; going on to {plan.rounds}")
        plan = _make_runs(plan, make, warn)
    solve_heads(plan)
    return plan


def announced(plan: ComparisonPlan, processes: int) -> str:
    """What will be run, how many runs at most, and about how long that takes here, in a line."""
    from ecgr.runs.calibration import calibrate  # loads torch

    runs, seconds = 0, 0.0
    for method in plan.methods:
        left = [run for run in (*method.tuning, *method.runs) if not run.finished]
        rounds = sum(run.rounds_left for run in left)
        runs += len(left)
        if method.space:  # the second stage goes on with the first one's runs
            finals = min(FINALISTS, len(method.trials)) * min(ALONE_TUNED, len(method.variants))
            runs += finals * (len(TUNING_SEEDS) - len(FIRST_SEEDS))
            rounds += finals * (len(TUNING_SEEDS) * plan.rounds - len(FIRST_SEEDS) * plan.first_rounds)
        with suppress(EcgrError):  # data that are on other machines only: the runs are counted, not their time
            costs = calibrate([run.experiment for run in left[-1:]], lambda kind: None).values()
            seconds += rounds * sum(cost.seconds for cost in costs)
    beside = [method.name for method in plan.methods if method.name in REFERENCES]
    what = ", ".join([f"{len(plan.compared)} methods", *beside, f"{len(plan.seeds)} seeds", f"{plan.rounds} rounds"])
    most = f" (until level, at most {plan.until})" if plan.until else ""
    time = f", about {duration(seconds / processes)} with {processes} at a time" if seconds else ""
    return f"{what}{most}: {runs} runs{' with those of tuning' if plan.tuning else ''}{time}"


def levelled(plan: ComparisonPlan) -> bool:
    """Whether the answer would say that all have levelled off; one that diverged has no end to wait for."""
    pairs = analyse_runs(plan.directory).pairs
    return all(pair.levelled_off for pair in pairs if pair.difference is not None)


def _make_runs(plan: ComparisonPlan, make: Make, warn: Warn) -> ComparisonPlan:
    """The plan without references that cannot be trained."""
    names = {run.name: method.name for method in plan.methods for run in method.runs}

    def diverged(run: PlannedRun) -> None:
        lr = run.experiment.optimizer.lr
        warn(f"note: {names[run.name]} diverged at optimizer.lr = {lr:g}; try optimizer.lr={lr / 10:.2g}")

    try:
        make(plan.runs, needed={run.name for run in plan.baseline.runs}, diverged=diverged)
    finally:
        if any(RunRecord.is_run(run.directory) for run in plan.runs):
            plan.write()
    _refuse_diverged(plan.baseline.runs)
    kept = tuple(method for method in plan.methods if method.name not in REFERENCES or method.made)
    if len(kept) < len(plan.methods):
        plan = replace(plan, methods=kept)
        plan.write()
    return plan


def _refuse_diverged(baseline: Sequence[PlannedRun]) -> None:
    """With a baseline that has no end there is nothing to compare with."""
    if lost := [run for run in baseline if not run.finished]:
        first = next((run for run in lost if run.diverged is not None), lost[0])
        lr = first.experiment.optimizer.lr
        rates = ",".join(f"{lr / factor:.2g}" for factor in (100, 30, 10))
        raise QuorumLost(
            f"compare: the baseline diverged with seed {first.experiment.run.seed} at optimizer.lr = {lr:g}, and the"
            f" others were not run any further: there is nothing to compare with; set optimizer.lr={lr / 10:.2g},"
            f" or tune it: --tune optimizer.lr={rates} ({first.name}: {first.diverged})"
        )
