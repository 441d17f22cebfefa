"""A comparison thought out beforehand: everything that is wrong with it is said before anything is written."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ecgr.config.experiment import Experiment, read
from ecgr.config.methods import PARTS, split_methods
from ecgr.config.registry import override
from ecgr.errors import ConfigError
from ecgr.runs.design import ARMS, TUNING, Design, refuse_treatment
from ecgr.runs.paired import SEEDS, Arm, Raw, is_baseline, method_arms, regulator_arms, seed_list, with_seeds
from ecgr.runs.sweep import Planned, plan
from ecgr.tables import shown

TUNING_SEEDS = (100, 101)
"""Hyper-parameters are chosen on seeds that are not among those of the comparison."""
VALIDATION = 0.2
"""The share of the training data that tuning runs are scored on instead of the test data."""

PROBLEM = ("data", "partition")
"""The sections that say what is learnt and by whom: hyper-parameters are not among their keys."""

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
    def baseline_runs(self) -> list[Planned]:
        """Their runs."""
        return plan(with_seeds(self.raw, self.baselines, self.seeds), self.directory, ARMS)

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
    if "run.seed" in (settings or {}):
        raise ConfigError("run.seed: the seeds of a comparison are those of --seeds; leave it out")
    chosen, grid = seed_list(SEEDS if seeds is None else seeds), grid_of(tune or {})
    if methods is not None:
        arms = method_arms(raw, split_methods(methods) if isinstance(methods, str) else methods, baseline)
        design = Design("method", arms[0].name, tuple(treatment), tuple(grid))
    else:
        arms = regulator_arms(raw, regulators, algorithms, baseline)
        design = Design("regulator", baseline, tuple(treatment), tuple(grid))
    refuse_grid(raw, arms, grid, chosen)
    name = arms[0].experiment(raw, {}).run.name
    directory = Path(out) if out is not None else Path("runs") / (f"compare-{name}" if name else "compare")
    planned = Plan(raw, arms, chosen, directory, design, grid)
    configs = [each.experiment.to_dict() for each in planned.runs]
    refuse_treatment(treatment, {f"{s}.{key}" for config in configs for s, values in config.items() for key in values})
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


def grid_of(tune: Any) -> Grid:
    """Values to choose from, each once.

    >>> grid_of({"optimizer.lr": (0.1, 0.3, 0.1)})
    {'optimizer.lr': [0.1, 0.3]}
    """
    if not isinstance(tune, Mapping):
        raise ConfigError(
            f"--tune: {shown(tune)} does not fit; give lists by key, as in {{'optimizer.lr': [0.01, 0.03]}}"
        )
    grid: dict[str, list[Any]] = {}
    for key, values in tune.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError(f"--tune: {key}: {shown(values)} does not fit; give a list of values")
        chosen = grid.setdefault(key, [])
        for value in values:
            chosen += [value] if value not in chosen else []
    return grid


def refuse_grid(raw: Raw, arms: Sequence[Arm], grid: Grid, seeds: Sequence[int]) -> None:
    """A key that no arm has or that is not a method's to choose, a value that does not fit, or tuning's own seeds."""
    for key, values in grid.items():
        if key == "run.seed" or key.partition(".")[0] in PROBLEM:
            raise ConfigError(f"--tune: {key} is the same for all methods, or they are not paired; leave it out")
        if key in {f"{part}.name" for part in PARTS}:
            raise ConfigError(f"--tune: {key} names another method; give it to --methods")
        if not values:
            raise ConfigError(f"--tune: {key} has no values; give some, for example optimizer.lr=0.003,0.01,0.03")
        if not any(trial.values for arm in arms for trial in trials(raw, arm, {key: values})):
            raise ConfigError(f"--tune: no method has the key {key}; `ecgr list` shows the parameters")
    if used := sorted({*seeds} & {*TUNING_SEEDS}):
        raise ConfigError(f"--seeds: {used[0]} is a seed that hyper-parameters are tuned on; compare on others")
