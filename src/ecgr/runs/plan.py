"""A comparison thought out beforehand: everything that is wrong with it is said before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ecgr.errors import ConfigError
from ecgr.experiment.choices import override
from ecgr.experiment.config import Experiment, read
from ecgr.runs.design import ARMS, TUNING, Design
from ecgr.runs.paired import SEEDS, Arm, Raw, is_baseline, method_arms, regulator_arms, seed_list, with_seeds
from ecgr.runs.sweep import Planned, plan

TUNING_SEEDS = (100, 101)
"""Hyper-parameters are chosen on seeds that are not among those of the comparison."""
VALIDATION = 0.2
"""The share of the training data that tuning runs are scored on instead of the test data."""

Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of hyper-parameters for an arm, and its runs on the tuning seeds."""

    arm: Arm
    values: Mapping[str, Any]
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """A comparison that was thought out and not begun: nothing is written yet."""

    raw: Raw
    arms: Sequence[Arm]
    seeds: Sequence[int]
    directory: Path
    design: Design
    grid: Grid

    @property
    def runs(self) -> list[Planned]:
        """The runs that are compared; with a grid, at hyper-parameters still to be chosen."""
        return plan(with_seeds(self.raw, self.arms, self.seeds), self.directory, ARMS)

    @property
    def tuning(self) -> list[Planned]:
        """The runs on which hyper-parameters are chosen."""
        if not self.grid:
            return []
        found = (trial for arm in self.arms for trial in trials(self.raw, arm, self.grid))
        return [place for trial in found for place in self.places(trial)]

    def places(self, trial: Trial) -> list[Planned]:
        """A trial's runs."""
        return plan(trial.experiments, self.directory, TUNING)

    @property
    def baselines(self) -> list[Arm]:
        """The arms that others are compared with."""
        return [arm for arm in self.arms if is_baseline(arm, self.design)]

    @property
    def budget(self) -> str:
        """What tuning costs, the same for every arm."""
        most = max(len(trials(self.raw, arm, self.grid)) for arm in self.arms)
        return (
            f"each of {len(self.arms)} methods is tuned with {most} choices of {', '.join(self.grid)} on seeds"
            f" {', '.join(map(str, TUNING_SEEDS))}, scored on {100 * VALIDATION:g} % of the training data"
        )


def plan_comparison(
    source: Any,
    baseline: Any = None,
    *,
    methods: Sequence[Any] | None = None,
    seeds: int | str | Iterable[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    tune: Grid | None = None,
    treatment: Sequence[str] = (),
    out: str | Path | None = None,
) -> Plan:
    """The runs of a comparison and the directory that it lives in; everything that is wrong is said here."""
    raw = override(read(source), settings or {})
    if methods and (regulators or algorithms):
        raise ConfigError("--methods: names whole methods; leave out --regulators and --algorithms")
    chosen = seed_list(SEEDS if seeds is None else seeds)
    if methods:
        arms = method_arms(raw, methods, baseline)
        design = Design("method", arms[0].name, tuple(treatment), tuple(tune or ()))
    else:
        arms = regulator_arms(raw, regulators, algorithms)
        design = Design("regulator", baseline, tuple(treatment), tuple(tune or ()))
    refuse_grid(raw, arms, tune or {}, chosen)
    name = arms[0].experiment(raw, {}).run.name
    directory = Path(out) if out is not None else Path("runs") / (f"compare-{name}" if name else "compare")
    planned = Plan(raw, arms, chosen, directory, design, tune or {})
    _refuse_unknown_treatment(treatment, planned.runs)
    return planned


def trials(raw: Raw, arm: Arm, grid: Grid) -> list[Trial]:
    """Every combination of the grid for one arm, trained on a part of the training data and scored on the rest.

    Keys that the arm does not have, as a regulator's at the baseline, are not tuned there.
    """
    config = arm.experiment(raw, {}).to_dict()
    known = {f"{section}.{key}" for section, values in config.items() for key in values}
    own = {key: values for key, values in grid.items() if key in known}
    choices = [dict(zip(own, values, strict=True)) for values in product(*own.values())]
    return [
        Trial(
            arm,
            values,
            tuple(
                arm.experiment(raw, {**values, "run.seed": seed, "data.validation": VALIDATION})
                for seed in TUNING_SEEDS
            ),
        )
        for values in choices
    ]


def refuse_grid(raw: Raw, arms: Sequence[Arm], grid: Grid, seeds: Sequence[int]) -> None:
    """A key that no arm has, a value that does not fit, or seeds that tuning needs for itself."""
    for key, values in grid.items():
        if not values:
            raise ConfigError(f"--tune: {key} has no values; give some, for example optimizer.lr=0.003,0.01,0.03")
        if not any(trial.values for arm in arms for trial in trials(raw, arm, {key: values})):
            raise ConfigError(f"--tune: no method has the key {key}; `ecgr list` shows the parameters")
    if used := sorted({*seeds} & {*TUNING_SEEDS}):
        raise ConfigError(f"--seeds: {used[0]} is a seed that hyper-parameters are tuned on; compare on others")


def _refuse_unknown_treatment(treatment: Sequence[str], plans: Sequence[Planned]) -> None:
    """A treatment that no run has, said before anything runs."""
    keys = {f"{s}.{key}" for each in plans for s, values in each.experiment.to_dict().items() for key in values}
    missing = [key for key in treatment if key not in keys]
    if missing:
        raise ConfigError(f"--treatment: no run has {missing[0]}; give config keys, for example run.step_control")
