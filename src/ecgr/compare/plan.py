"""What a comparison will run: its methods, their seeds and places, what is tuned, and who is compared with whom.

Everything that is wrong with it is said here, before anything is written. ``plan.json`` keeps in the comparison's
directory which runs are whose, so that nobody has to guess it from their configs.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, product
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

from ecgr.analysis.comparison import REFERENCES
from ecgr.analysis.power import power_of
from ecgr.analysis.tuning import Space, first_trials
from ecgr.compare.space import space_of
from ecgr.config.experiment import OWN, Experiment, read
from ecgr.config.methods import PARTS, method_settings, split_methods
from ecgr.config.optimizers import CONSTANT_RATE, Constant
from ecgr.config.partition import divided, draws_split, scorable
from ecgr.config.registry import override
from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.files import write_atomically
from ecgr.runs.identity import Identify, method_of
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.sweep import PlannedRun, plan_runs
from ecgr.tables import shown
from ecgr.tasks.task import Task

FILE, TUNED = "plan.json", "tuning.json"
ALONE_MOST = 20
"""Clients that train alone, at most: who they are is drawn with the seed."""
ALONE_TUNED = 3
"""Clients that the rate of training alone is tuned on."""
RUNS, TUNING = "runs", "tuning"
"""Folders of a comparison: the runs that are compared, and those on which hyper-parameters were chosen."""
METHODS = ("fedavg", "fedavgm(server_momentum=0.5)", "drift_correction", "fedavg+ecgr")
"""What is compared where nobody says what."""
SEEDS = 10
"""With fewer, hardly any comparison can decide anything."""
MOST_SEEDS = 10_000
TUNING_SEEDS = (100, 101, 102, 103)
"""Hyper-parameters are chosen on seeds that are not among those of the comparison."""
FIRST_SEEDS = TUNING_SEEDS[:2]
"""Those of the first stage, and of a grid."""
TRIALS = 12
"""For each method, the first being its defaults."""
LEAST_ROUNDS = 3
RATE = "optimizer.lr"
VALIDATION = 0.2
"""The share of the training data that tuning runs are scored on instead of the test data."""
PROBLEM = ("data", "partition")
"""The sections that say what is learnt and by whom: hyper-parameters are not among their keys."""

Raw = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice of hyper-parameters for a method, and its runs on the tuning seeds."""

    values: Mapping[str, Any]
    runs: tuple[PlannedRun, ...]


@dataclass(frozen=True, slots=True)
class MethodPlan:
    """A method by its one name, the experiment that it makes, its runs by seed, and what tunes it.

    While it is to be tuned, its runs are those at hyper-parameters still to be chosen. Its trials are the first ones,
    or all of a grid, which has no space. ``variants`` are config keys, and a seed has a run of each: the clients that
    train alone. What is ``given`` with the method's name is not tuned.
    """

    name: str
    experiment: Experiment
    runs: tuple[PlannedRun, ...] = ()
    space: Space = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    chosen: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ({},)
    given: frozenset[str] = frozenset()

    @property
    def tuning(self) -> list[PlannedRun]:
        return [run for trial in self.trials for run in trial.runs]

    @property
    def made(self) -> bool:
        """Whether all its runs ended, be it that they diverged."""
        return all(run.record.ended for run in self.runs)


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """A comparison that is not begun; the first of its methods is the baseline of the others."""

    methods: tuple[MethodPlan, ...]
    seeds: Sequence[int]
    directory: Path
    identify: Identify
    until: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def baseline(self) -> MethodPlan:
        return self.methods[0]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Who is compared with whom."""
        return [(method.name, self.baseline.name) for method in self.compared[1:]]

    @property
    def compared(self) -> list[MethodPlan]:
        """The methods without the references."""
        return [method for method in self.methods if method.name not in REFERENCES]

    @property
    def rounds(self) -> int:
        """How many every run has, or will have."""
        return self.runs[0].experiment.federation.rounds

    @property
    def first_rounds(self) -> int:
        """How many the first stage of tuning has: half of them, but not too few to tell anything."""
        return min(self.rounds, max(LEAST_ROUNDS, math.ceil(self.rounds / 2)))

    @property
    def staged(self) -> bool:
        """Whether methods are tuned in two stages, not over a grid."""
        return any(method.space for method in self.methods)

    @property
    def tuned(self) -> list[str]:
        """The keys that are tuned of any method, or were."""
        values = [each for method in self.methods for each in (method.chosen, *(t.values for t in method.trials))]
        return list(dict.fromkeys(key for each in values for key in each))

    @property
    def runs(self) -> list[PlannedRun]:
        return [run for method in self.methods for run in method.runs]

    @property
    def tuning(self) -> list[PlannedRun]:
        return [run for method in self.methods for run in method.tuning]

    @property
    def power(self) -> str:
        """What this number of seeds and comparisons can show at all."""
        return power_of(len(self.seeds), 2 * len(self.pairs), overlap=self.overlap).sentence

    @property
    def overlap(self) -> float | None:
        """About the ratio of test to training samples, where the split is redrawn with the seed."""
        experiment = self.baseline.experiment
        if not experiment.data.redraw:
            return None
        if isinstance(experiment.source, Task):
            return len(experiment.source.test) / len(experiment.source.train)
        share: float = getattr(experiment.source, "test_share", VALIDATION)
        return share / (1 - share)

    @property
    def budget(self) -> str:
        """What tuning costs, the same for every method."""
        most = max(len(method.trials) for method in self.methods)
        scored = f"{100 * VALIDATION:g} % of the training data"
        if self.staged:
            first, last = (f"{len(seeds)} seeds" for seeds in (FIRST_SEEDS, TUNING_SEEDS))
            return (
                f"each of {len(self.methods)} methods is tuned with {most} trials, scored on {scored}: all for"
                f" {self.first_rounds} rounds on {first}, the best three for {self.rounds} on {last}"
            )
        return (
            f"each of {len(self.methods)} methods is tuned with {most} choices of {', '.join(self.tuned)} on seeds"
            f" {', '.join(map(str, FIRST_SEEDS))}, scored on {scored}"
        )

    def trial(self, method: MethodPlan, values: Mapping[str, Any], seeds: Sequence[int], rounds: int) -> Trial:
        """One choice of hyper-parameters, trained on a part of the training data and scored on the rest."""
        changes = {**values, "data.validation": VALIDATION, "federation.rounds": rounds}
        few = replace(method, variants=method.variants[:ALONE_TUNED])
        return Trial(values, self._runs(few, changes, seeds, TUNING))

    def _runs(
        self, method: MethodPlan, changes: Raw, seeds: Sequence[int], folder: str = RUNS
    ) -> tuple[PlannedRun, ...]:
        each = [{**changes, **variant, "run.seed": seed} for seed in seeds for variant in method.variants]
        experiments = [method.experiment.replace(own) for own in each]
        return tuple(plan_runs(experiments, self.directory, folder, self.identify))

    def with_runs(self, changes: Raw = MappingProxyType({})) -> "ComparisonPlan":
        """The same plan with the runs of each method at what was chosen for it, and ``changes``."""
        methods = (
            replace(each, runs=self._runs(each, {**each.chosen, **changes}, self.seeds)) for each in self.methods
        )
        return replace(self, methods=tuple(methods))

    def with_choices(self, chosen: Sequence[Raw], trials: Sequence[tuple[Trial, ...]]) -> "ComparisonPlan":
        """The same plan with each method's runs at what was chosen for it, and all its trials."""
        known = zip(self.methods, chosen, trials, strict=True)
        methods = (replace(method, chosen=best, trials=tried) for method, best, tried in known)
        return replace(self, methods=tuple(methods)).with_runs()

    def write(self) -> None:
        """Keep it in the comparison's directory."""
        content = {
            "baseline": self.baseline.name,
            "pairs": self.pairs,
            "seeds": list(self.seeds),
            "rounds": self.rounds,
            "tuned": self.tuned,
            "methods": [
                {
                    "name": method.name,
                    "chosen": dict(method.chosen),
                    "runs": [run.directory.relative_to(self.directory).as_posix() for run in method.runs],
                }
                for method in self.methods
            ],
        }
        write_atomically(self.directory / FILE, to_json(content, indent=2))


def plan_comparison(
    source: Any,
    baseline: Any = None,
    *,
    methods: Sequence[Any] | None = None,
    seeds: int | str | Iterable[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    tune: Grid | bool | None = None,
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
    trials: int = TRIALS,
    until_level: int | None = None,
    references: bool = True,
    out: str | Path | None = None,
) -> ComparisonPlan:
    """The runs of a comparison and the directory that it lives in; everything that is wrong is said here."""
    raw = split_anew(anytime(override(read(source), settings or {})))
    if "run.seed" in (settings or {}):
        raise ConfigError("run.seed: the seeds of a comparison are given as seeds; leave it out")
    paired = seed_list(SEEDS if seeds is None else seeds)
    grid = {} if tune is None or isinstance(tune, bool) else grid_of(tune)
    given = METHODS if methods is None else split_methods(methods) if isinstance(methods, str) else methods
    given = [*([] if baseline is None else [baseline]), *given]
    named = _named(raw, given)
    if any(made.data.score == OWN for _, made in named.values()):  # then all are, or they could not be compared
        raw = override(raw, {"data.score": OWN})
        named = _named(raw, given)
    if chosen is not None and (unknown := sorted(chosen.keys() - {*named, *REFERENCES})):
        raise ConfigError(f"chosen: {unknown[0]} is not compared; the methods are {', '.join(named)}")
    if tune is not False and chosen is None and (used := sorted({*paired} & {*TUNING_SEEDS})):
        raise ConfigError(
            f"seeds: {used[0]} is a seed that hyper-parameters are tuned on; compare on others, or turn tuning off"
        )
    if not _is_whole(trials) or trials < 1:
        raise ConfigError(f"trials: expected a whole number, at least 1, got {shown(trials)}")
    name = next(iter(named.values()))[1].run.name
    directory = Path(out) if out is not None else Path("runs") / (f"compare-{name}" if name else "compare")
    listed = [MethodPlan(name, made, given=frozenset(changes)) for name, (changes, made) in named.items()]
    plain = Experiment.from_dict(override(raw, method_settings("fedavg")))
    if plain.data.server_samples is not None or getattr(plain.source, "server", None) is not None:
        listed.append(MethodPlan("server alone", plain, variants=({"partition.server": True},)))
    notes: tuple[str, ...] = ()
    try:
        listed += _references(plain) if references else []
    except EcgrError as error:
        notes = (f"{' and '.join(REFERENCES)} left out: {'; '.join(str(error).splitlines())}",)
    comparison = ComparisonPlan(tuple(listed), paired, directory, Identify(), until_level, notes).with_runs()
    if until_level is not None:
        _refuse_until(comparison, until_level)
    if chosen is not None:
        return comparison.with_choices([chosen.get(each.name, {}) for each in listed], [()] * len(listed))
    if tune is False:
        return comparison
    tried = tuple(_with_trials(comparison, method, grid, trials) for method in comparison.methods)
    comparison = replace(comparison, methods=tried)
    for key in grid:
        if key not in comparison.tuned:
            raise ConfigError(f"tune: no method has the key {key}; `ecgr list` shows the parameters")
    return comparison


def anytime(raw: Raw) -> Raw:
    """The defaults of comparisons: where no other schedule is named, the rate is constant and an average is served.

    Then every point of a curve is what one would have had by stopping there, and a run can simply go on.

    >>> anytime({"run": {"seed": 1}})["run"], anytime({"schedule": {"name": "cosine"}})
    ({'seed': 1, 'served': 'average'}, {'schedule': {'name': 'cosine'}})
    """
    schedule, run = raw.get("schedule", {}), raw.get("run", {})
    if not isinstance(schedule, Mapping) or not isinstance(run, Mapping):
        return raw  # refused when the experiment is built
    decays = schedule.get("name", CONSTANT_RATE) != CONSTANT_RATE
    return raw if decays or "served" in run else override(raw, {"run.served": "average"})


def split_anew(raw: Raw) -> Raw:
    """With a split into training and test samples that is drawn anew with the seed, where nobody gave test samples."""
    data = raw.get("data", {})
    if not isinstance(data, Mapping) or data.keys() & {"redraw", "split_seed"}:
        return raw
    source = Experiment.from_dict(raw).source
    with suppress(EcgrError):  # data that are not here: said before anything is run
        if source.redraw if isinstance(source, Task) else draws_split(source):
            return override(raw, {"data.redraw": True})
    return raw


def reference_of(run: PlannedRun) -> str | None:
    """The reference that a run belongs to: a comparison can do without."""
    partition = run.experiment.partition
    return "pooled" if partition.pooled else None if partition.alone is None else "alone"


def planned_records(directory: Path) -> tuple[str, bool, list[tuple[str, RunRecord]]] | None:
    """Of the plan kept in ``directory``: its baseline, whether it was tuned, and each run with its method; or None.

    A run that was not begun is left out; one that has more rounds than were planned is read as the shorter one.
    """
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        named = [(str(own["name"]), directory / str(run)) for own in content["methods"] for run in own["runs"]]
        baseline, rounds = str(content["baseline"]), content.get("rounds")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the plan of a comparison ({error}); `ecgr compare` writes it") from None
    tuned = bool(content.get("tuned"))
    return baseline, tuned, [(method, RunRecord.open(run, rounds)) for method, run in named if RunRecord.is_run(run)]


def tuning_of(directory: Path) -> dict[str, Any]:
    """What ``tuning.json`` says of each method; empty where there is none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return {str(own["method"]): own for own in json.loads((directory / TUNED).read_bytes())["methods"]}
    return {}


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """The seeds meant by a number of them, by text, or by the seeds themselves.

    >>> seed_list(3), seed_list("3"), seed_list("0,1,42"), seed_list("3-5"), seed_list([7])
    ([0, 1, 2], [0, 1, 2], [0, 1, 42], [3, 4, 5], [7])
    """
    found: Iterable[Any] = seeds if isinstance(seeds, Iterable) else ()
    if isinstance(seeds, str):
        text = seeds.strip()
        if span := re.fullmatch(r"(\d+)\s*-\s*(\d+)", text):
            found = range(int(span[1]), int(span[2]) + 1)
        else:
            each = [int(part) if part.strip().isdecimal() else -1 for part in text.rstrip(",").split(",")]
            found = range(each[0]) if text.isdecimal() else each
    elif _is_whole(seeds):
        found = range(int(seeds))
    chosen = [int(seed) if _is_whole(seed) else -1 for seed in islice(found, MOST_SEEDS + 1)]
    if len(chosen) > MOST_SEEDS:
        raise ConfigError(f"seeds: {shown(seeds)} are too many; give at most {MOST_SEEDS:,}")
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise ConfigError(
            f"seeds: expected how many (10 means 0 to 9), which (0,1,42), or a range (3-7), got {shown(seeds)}"
        )
    return chosen


def grid_of(tune: Any) -> Grid:
    """Values to choose from, each once; refused where a key is not a method's to choose, or has no values.

    >>> grid_of({"optimizer.lr": (0.1, 0.3, 0.1)})
    {'optimizer.lr': [0.1, 0.3]}
    """
    if not isinstance(tune, Mapping):
        raise ConfigError(f"tune: expected lists by key, as in {{'optimizer.lr': [0.01, 0.03]}}, got {shown(tune)}")
    grid: dict[str, list[Any]] = {}
    for key, values in tune.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError(f"tune: {key}: expected a list of values, got {shown(values)}")
        if key == "run.seed" or key.partition(".")[0] in PROBLEM:
            raise ConfigError(f"tune: {key} is the same for all methods, or they are not paired; leave it out")
        if key in {f"{part}.name" for part in PARTS}:
            raise ConfigError(f"tune: {key} names another method; add that to the methods")
        chosen = grid.setdefault(key, [])
        for value in values:
            chosen += [value] if value not in chosen else []
        if not chosen:
            raise ConfigError(f"tune: {key} has no values; give some, for example optimizer.lr=0.003,0.01,0.03")
    return grid


def _named(raw: Raw, given: Sequence[Any]) -> dict[str, tuple[dict[str, Any], Experiment]]:
    """Methods, as text or objects, by the names that their records have: config keys, and the experiment they make."""
    methods: dict[str, tuple[dict[str, Any], Experiment]] = {}
    for each in given:
        changes = method_settings(each)
        experiment = Experiment.from_dict(override(raw, changes))
        method = method_of(experiment)
        _, known = methods.setdefault(method.name, (changes, experiment))
        if not method.is_same(method_of(known)):
            raise ConfigError(f"methods: two different methods are named {method.name}; rename the class or function")
    if len(methods) < 2:
        raise ConfigError("methods: nothing to compare; give two or more, for example fedavg,fedavg+ecgr,scaffold")
    return methods


def _references(experiment: Experiment) -> list[MethodPlan]:
    """Each client by itself, and one model on everybody's data: plain FedAvg of one client."""
    clients = experiment.partition.clients
    if clients is None or experiment.partition.empty == "skip" or experiment.data.score == OWN:
        clients = len(scorable(experiment, *divided(experiment, experiment.source.load())))
    alone = tuple({"partition.alone": client} for client in range(min(ALONE_MOST, clients)))
    pooled = ({"partition.pooled": True},)
    both = [MethodPlan("alone", experiment, variants=alone), MethodPlan("pooled", experiment, variants=pooled)]
    return [method for method in both if method.variants]


def _with_trials(comparison: ComparisonPlan, method: MethodPlan, grid: Grid, count: int) -> MethodPlan:
    """Every combination of the grid; without one, the defaults and quasi-random points of the method's space.

    Keys of a grid that the method does not have, as a regulator's at the baseline, are not tuned there.
    """
    if grid:
        known = {f"{section}.{key}" for section, values in method.experiment.to_dict().items() for key in values}
        own = {key: values for key, values in grid.items() if key in known}
        points = [dict(zip(own, values, strict=True)) for values in product(*own.values())]
        rounds = comparison.rounds
    else:
        space = {key: axis for key, axis in space_of(method.experiment).items() if key not in method.given}
        if method.name in REFERENCES:  # a client by itself has no server
            space = {key: axis for key, axis in space.items() if key == RATE}
        method = replace(method, space=space)
        points = first_trials(method.space, count) if method.space else []
        rounds = comparison.first_rounds
    return replace(method, trials=tuple(comparison.trial(method, values, FIRST_SEEDS, rounds) for values in points))


def _refuse_until(comparison: ComparisonPlan, most: int) -> None:
    """A number of rounds to go on to that no run can go on to."""
    if not _is_whole(most) or most < comparison.rounds:
        raise ConfigError(f"until_level: expected at least federation.rounds = {comparison.rounds}, got {shown(most)}")
    experiment = comparison.baseline.experiment
    if not isinstance(experiment.schedule, Constant):
        name = experiment.to_dict()["schedule"]["name"]
        raise ConfigError(
            f"until_level: schedule.name = {name!r} levels off because its learning rate decays;"
            ' set schedule.name = "constant", or give the number of rounds'
        )


def _is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number, numpy's too, and not a truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)
