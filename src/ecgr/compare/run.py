"""Make what is missing of a plan: tuning runs, the choice of hyper-parameters, and the runs that are compared."""

from collections.abc import Callable, Sequence

from ecgr.analysis.quantities import ACCURACY
from ecgr.analysis.records import read_runs
from ecgr.analysis.summaries import last5
from ecgr.analysis.tuning import Choice, Scored, choose
from ecgr.compare.plan import TUNING_SEEDS, VALIDATION, MethodPlan, Plan
from ecgr.errors import ConfigError, QuorumLost
from ecgr.files import write_atomically
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.sweep import Planned

Make = Callable[..., None]
"""Makes the runs that are left of some that are planned."""
Warn = Callable[[str], None]


def run_plan(plan: Plan, make: Make, warn: Warn) -> Plan:
    """Tune and run, as far as it is not done yet, and keep the plan, as it is then, beside the runs."""
    if not all(run.finished for run in plan.runs):
        warn(plan.power)
    if plan.tuned:
        plan = tune(plan, make, warn)
    try:
        # A method that diverges is an answer, too; without a baseline there is none.
        needed = {run.name for run in plan.baseline.runs}
        make(plan.runs, tolerated=(QuorumLost.exit_code,), needed=needed)
    finally:
        if any(RunRecord.is_run(run.directory) for run in plan.runs):
            plan.write()
    _refuse_diverged(plan.baseline.runs)
    return plan


def tune(plan: Plan, make: Make, warn: Warn) -> Plan:
    """The plan with the best hyper-parameters of each method; every trial stays, in ``tuning.json`` and as runs."""
    warn(f"note: {plan.budget}")
    make(plan.tuning, tolerated=(QuorumLost.exit_code,))  # a choice that diverges has been tried, too
    choices = [_choice(method) for method in plan.methods]
    if not choices[0].trained:
        raise ConfigError(
            f"tune: no choice of hyper-parameters for {plan.baseline.name} could be trained; try smaller values"
        )
    for line in [line for choice in choices for line in choice.warnings]:
        warn(f"note: {line}")
    content = {
        "keys": list(plan.tuned),
        "seeds": list(TUNING_SEEDS),
        "validation": VALIDATION,
        "budget": plan.budget,
        "methods": [choice.to_json() for choice in choices],
    }
    write_atomically(plan.directory / "tuning.json", to_json(content, indent=2))
    return plan.with_choices(choices)


def _choice(method: MethodPlan) -> Choice:
    """The best trial of a method, by the mean of the primary metric's last rounds on the validation data."""
    scored, quantity = [], ACCURACY
    for trial in method.trials:
        scores: dict[int, float | None] = {}
        for place in trial.runs:
            score = None
            if place.finished:
                (run,) = read_runs([place.record], [method.name])
                score, quantity = last5(run.summary), run.summary.metric
            scores[place.experiment.run.seed] = score
        scored.append(Scored(trial.values, scores))
    return choose(method.name, scored, quantity)


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
