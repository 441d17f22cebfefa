"""The runs of a comparison: its arms, each with the same seeds, so that every run has its partner."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import Any, TypeGuard

from ecgr.config.experiment import Experiment
from ecgr.config.methods import method_settings
from ecgr.config.registry import override
from ecgr.errors import ConfigError
from ecgr.runs.design import Design
from ecgr.runs.manifest import method_of
from ecgr.tables import shown

SEEDS = 10
"""With fewer, hardly any comparison can decide anything."""
MOST_SEEDS = 10_000

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison: what it is called, and the config keys that make it."""

    name: str
    changes: Mapping[str, Any]

    def experiment(self, raw: Raw, more: Mapping[str, Any]) -> Experiment:
        """The arm's experiment with more dotted keys changed."""
        return Experiment.from_dict(override(raw, {**self.changes, **more}))


def regulator_arms(
    raw: Raw,
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    baseline: str | None = None,
) -> list[Arm]:
    """Regulators and ``none`` under each algorithm; by default the experiment's own of both."""
    own = Experiment.from_dict(raw).to_dict()
    chosen = list(dict.fromkeys(["none", *(regulators or [own["regulator"]["name"]])]))
    if len(chosen) < 2:
        raise ConfigError(
            "--regulators: nothing to compare with none; give another, for example --regulators none,ecgr"
        )
    if baseline is not None and baseline not in chosen:
        raise ConfigError(f"--baseline: {baseline} is not compared; without --methods give one of {', '.join(chosen)}")
    return [
        Arm(f"{algorithm}, {regulator}", {"algorithm.name": algorithm, "regulator.name": regulator})
        for algorithm in algorithms or [own["algorithm"]["name"]]
        for regulator in chosen
    ]


def method_arms(raw: Raw, methods: Sequence[Any], baseline: Any = None) -> list[Arm]:
    """Methods, as text or objects, as arms under the names that their records have, the baseline first."""
    arms: dict[str, Arm] = {}
    for given in [*([] if baseline is None else [baseline]), *methods]:
        changes = method_settings(given)
        experiment = Arm("", changes).experiment(raw, {})
        name = method_of(experiment).name
        arms.setdefault(name, Arm(name, changes))
    if len(arms) < 2:
        raise ConfigError("--methods: nothing to compare; give two or more, for example fedavg,fedavg+ecgr,scaffold")
    return list(arms.values())


def with_seeds(raw: Raw, arms: Iterable[Arm], seeds: Sequence[int]) -> list[Experiment]:
    """Every arm with every seed."""
    return [arm.experiment(raw, {"run.seed": seed}) for arm in arms for seed in seeds]


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """The seeds meant by a number of them, by text, or by the seeds themselves.

    >>> seed_list(3), seed_list("3"), seed_list("0,1,42"), seed_list("3-5"), seed_list([7])
    ([0, 1, 2], [0, 1, 2], [0, 1, 42], [3, 4, 5], [7])
    """
    found: Iterable[Any] = ()
    if is_whole(seeds):
        found = range(int(seeds))
    elif isinstance(seeds, str):
        found = _seeds_in(seeds.strip())
    elif isinstance(seeds, Iterable):
        found = (int(seed) if is_whole(seed) else -1 for seed in seeds)
    chosen = list(islice(found, MOST_SEEDS + 1))
    if len(chosen) > MOST_SEEDS:
        raise ConfigError(f"--seeds: {shown(seeds)} are too many; give at most {MOST_SEEDS:,}")
    if not chosen or min(chosen) < 0 or len(set(chosen)) < len(chosen):
        raise ConfigError(
            f"--seeds: {shown(seeds)} does not fit; give how many (10 means 0 to 9), which (0,1,42), or a range (3-7)"
        )
    return chosen


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether it is a whole number, numpy's too; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _seeds_in(text: str) -> Sequence[int]:
    if text.isdecimal():
        return range(int(text))
    if span := re.fullmatch(r"(\d+)\s*-\s*(\d+)", text):
        return range(int(span[1]), int(span[2]) + 1)
    try:
        return [int(seed) for seed in text.rstrip(",").split(",")]
    except ValueError:
        return []


def is_baseline(arm: Arm, design: Design) -> bool:
    """Whether others are compared with this one."""
    if design.by == "method":
        return arm.name == design.baseline
    return bool(arm.changes["regulator.name"] == (design.baseline or "none"))


def longer(arm: Arm, raw: Raw, factor: float) -> dict[str, float]:
    """What makes an arm's server step ``factor`` times as long."""
    config = arm.experiment(raw, {}).to_dict()
    for section, key in (("server", "lr"), ("algorithm", "server_lr")):  # a shorthand takes the second alone
        if key in config.get(section, {}):
            change = {f"{section}.{key}": factor * config[section][key]}
            with suppress(ConfigError):
                arm.experiment(raw, change)
                return change
    raise ConfigError(f"--length: {arm.name} has no length of the server's step to change; take another baseline")
