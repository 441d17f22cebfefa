"""Make what is missing of a plan: the choice of hyper-parameters, and the runs that are compared."""

from collections.abc import Sequence
from statistics import fmean

from ecgr.analysis.curves import levelled_off
from ecgr.analysis.records import Run, read_runs
from ecgr.compare.plan import Plan
from ecgr.compare.tune import Make, Warn, tune
from ecgr.errors import QuorumLost
from ecgr.runs.record import RunRecord
from ecgr.runs.sweep import Planned


def run_plan(plan: Plan, make: Make, warn: Warn) -> Plan:
    """Tune and run, as far as it is not done yet, and keep the plan, as it is then, beside the runs."""
    if not all(run.finished for run in plan.runs):
        warn(plan.power)
    if plan.tuning:
        plan = tune(plan, make, warn)
    _make_runs(plan, make)
    while plan.until is not None and plan.rounds < plan.until and not levelled(plan):
        before, plan = plan.rounds, plan.with_rounds(min(plan.until, 2 * plan.rounds))
        warn(f"note: not levelled off after {before} rounds; going on to {plan.rounds}")
        _make_runs(plan, make)
    return plan


def levelled(plan: Plan) -> bool:
    """Whether every method has levelled off; one that diverged has no end to wait for."""
    finished = {
        method.name: read_runs(records, [method.name] * len(records))
        for method in plan.compared
        if (records := [run.record for run in method.runs if run.finished])
    }
    ends = [end for run in finished[plan.baseline.name] if (end := run.summary.values[-1]) is not None]
    margin = finished[plan.baseline.name][0].summary.metric.margin(fmean(ends) if ends else None)
    return margin is not None and all(levelled_off(_curves(runs), margin) for runs in finished.values())


def _curves(runs: Sequence[Run]) -> dict[int, list[float]]:
    """Scores by round, by seed, larger ones better; a run with a round that has none is left out."""
    return {
        run.summary.seed: [run.summary.metric.gain(value) for value in run.summary.values if value is not None]
        for run in runs
        if None not in run.summary.values
    }


def _make_runs(plan: Plan, make: Make) -> None:
    try:
        # A method that diverges is an answer, too; without a baseline there is none.
        needed = {run.name for run in plan.baseline.runs}
        make(plan.runs, tolerated=(QuorumLost.exit_code,), needed=needed)
    finally:
        if any(RunRecord.is_run(run.directory) for run in plan.runs):
            plan.write()
    _refuse_diverged(plan.baseline.runs)


def _refuse_diverged(baseline: Sequence[Planned]) -> None:
    """With a baseline that has no end there is nothing to compare with."""
    if lost := [run for run in baseline if not run.finished]:
        first = next((run for run in lost if run.diverged is not None), lost[0])
        lr = first.experiment.optimizer.lr
        rates = ",".join(f"{lr / factor:.2g}" for factor in (100, 30, 10))
        raise QuorumLost(
            f"compare: the baseline diverged with seed {first.experiment.run.seed} at optimizer.lr = {lr:g}, and the"
            f" others were not run any further: there is nothing to compare with; set optimizer.lr={lr / 10:g},"
            f" or tune it (optimizer.lr={rates}) ({first.name}: {first.diverged})"
        )
