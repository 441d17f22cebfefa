"""Tuning: every method's trials, in two stages or over a user's grid, and the choice among them.

All trials are run short on two seeds, the best three to the end on four; at a constant rate the runs go on. Where the
best of a method lies at the edge of a range, the range is extended first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.analysis.records import read_runs
from ecgr.analysis.summaries import mean_or_none
from ecgr.analysis.tuning import Choice, Scored, Space, choose, extension, ranking
from ecgr.compare.plan import FIRST_SEEDS, TUNED, TUNING_SEEDS, VALIDATION, ComparisonPlan, MethodPlan, Trial
from ecgr.errors import ConfigError
from ecgr.files import write_atomically
from ecgr.runs.record import to_json
from ecgr.runs.sweep import PlannedRun

Make = Callable[..., None]
"""Makes the runs that are left of some that are planned."""
Warn = Callable[[str], None]

FINALISTS = 3
EXTRA = 4
"""Trials that an extended range gets."""
EXTENSIONS = 2
"""How often a range is extended at most."""


@dataclass
class Search:
    """The trials of one method so far, and those that have gone on to the second stage."""

    plan: ComparisonPlan
    method: MethodPlan
    space: Space
    trials: list[Trial]
    finals: dict[int, Trial] = field(default_factory=dict)
    quantity: Quantity = ACCURACY

    def scored(self) -> list[Scored]:
        """Every trial with its scores, stage after stage."""
        return [
            Scored(trial.values, tuple(self._scores(each.runs) for each in (trial, self.finals.get(index)) if each))
            for index, trial in enumerate(self.trials)
        ]

    def extended(self) -> list[Trial]:
        """New trials where the best lies at the edge of a range."""
        if not self.space:
            return []
        self.space, points = extension(self.space, self.scored(), self.quantity, EXTRA)
        new = [self.plan.trial(self.method, values, FIRST_SEEDS, self.plan.first_rounds) for values in points]
        self.trials += new
        return new

    def finalists(self) -> list[Trial]:
        """The best that have not gone on yet, while none that has could be trained to the end."""
        scored = self.scored()
        if not self.space or any(len(trial.stages) > 1 and not trial.failed for trial in scored):
            return []
        left = [trial for trial in ranking(scored, self.quantity) if len(trial.stages) == 1][:FINALISTS]
        new = {
            index: self.plan.trial(self.method, trial.values, TUNING_SEEDS, self.plan.rounds)
            for index, trial in enumerate(scored)
            if any(trial is each for each in left)
        }
        self.finals |= new
        return list(new.values())

    def choice(self) -> Choice:
        scored = self.scored()
        added = len(self.trials) - len(self.method.trials)
        return choose(self.method.name, scored, self.quantity, self.space, added)

    def _scores(self, runs: Sequence[PlannedRun]) -> dict[int, float | None]:
        """How the runs of each seed ended on the validation data; None where one of them failed."""
        scores: dict[int, list[float | None]] = {}
        for planned in runs:
            score = None
            if planned.finished:
                (run,) = read_runs([planned.record], [self.method.name])
                score, self.quantity = run.summary.end, run.summary.metric
            scores.setdefault(planned.experiment.run.seed, []).append(score)
        return {seed: mean_or_none(found) for seed, found in scores.items()}


def tune(plan: ComparisonPlan, make: Make, warn: Warn) -> ComparisonPlan:
    """The plan with the best hyper-parameters of each method; every trial stays, in ``tuning.json`` and as runs."""
    warn(f"note: {plan.budget}")
    searches = [Search(plan, method, method.space, list(method.trials)) for method in plan.methods]

    def make_trials(trials: Sequence[Trial]) -> None:
        if trials:
            make([run for trial in trials for run in trial.runs])

    make_trials([trial for search in searches for trial in search.trials])
    for _ in range(EXTENSIONS):
        make_trials([trial for search in searches for trial in search.extended()])
    while finalists := [trial for search in searches for trial in search.finalists()]:
        make_trials(finalists)
    choices = [search.choice() for search in searches]
    if not choices[0].trained:
        raise ConfigError(
            f"tune: no choice of hyper-parameters for {plan.baseline.name} could be trained; try smaller values"
        )
    for line in [line for choice in choices for line in choice.warnings]:
        warn(f"note: {line}")
    content = {
        "keys": list(plan.tuned),
        "seeds": list(TUNING_SEEDS if plan.staged else FIRST_SEEDS),
        "rounds": [plan.first_rounds, plan.rounds] if plan.staged else [plan.rounds],
        "validation": VALIDATION,
        "budget": plan.budget,
        "methods": [choice.to_json() for choice in choices],
    }
    write_atomically(plan.directory / TUNED, to_json(content, indent=2))
    trials = [(*search.trials, *search.finals.values()) for search in searches]
    return plan.with_choices([choice.best for choice in choices], trials)
