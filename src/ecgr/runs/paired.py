"""The runs of a comparison: its arms, each with the same seeds, so that every run has its partner."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ecgr.errors import ConfigError
from ecgr.experiment.choices import override
from ecgr.experiment.config import Experiment
from ecgr.experiment.methods import Method, parse_method
from ecgr.runs.design import Design
from ecgr.runs.manifest import method_of

SEEDS = 10
"""With fewer, hardly any comparison can decide anything."""

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
    raw: Raw, regulators: Sequence[str] | None = None, algorithms: Sequence[str] | None = None
) -> list[Arm]:
    """Regulators and ``none`` under each algorithm; by default the experiment's own of both."""
    own = Experiment.from_dict(raw).to_dict()
    chosen = list(dict.fromkeys(["none", *(regulators or [own["regulator"]["name"]])]))
    if len(chosen) < 2:
        raise ConfigError(
            "--regulators: nothing to compare with none; give another, for example --regulators none,ecgr"
        )
    return [
        Arm(f"{algorithm}, {regulator}", {"algorithm.name": algorithm, "regulator.name": regulator})
        for algorithm in algorithms or [own["algorithm"]["name"]]
        for regulator in chosen
    ]


def method_arms(raw: Raw, methods: Sequence[Any], baseline: Any = None) -> list[Arm]:
    """Methods, as text or objects, as arms under the names that their records have, the baseline first."""
    arms: dict[str, Arm] = {}
    for given in [*([] if baseline is None else [baseline]), *methods]:
        changes = parse_method(given) if isinstance(given, str) else _parts(Method.of(given))
        experiment = Arm("", changes).experiment(raw, {})
        name = method_of(experiment).name
        arms.setdefault(name, Arm(name, changes))
    if len(arms) < 2:
        raise ConfigError("--methods: nothing to compare; give two or more, for example fedavg,fedavg+ecgr,scaffold")
    return list(arms.values())


def _parts(method: Method) -> dict[str, Any]:
    """A method of objects as config keys."""
    parts = {"algorithm": method.algorithm, "server": method.server, "regulator": method.regulator, "loss": method.loss}
    return {f"{section}.name": part for section, part in parts.items() if part is not None}


def with_seeds(raw: Raw, arms: Iterable[Arm], seeds: Sequence[int]) -> list[Experiment]:
    """Every arm with every seed."""
    return [arm.experiment(raw, {"run.seed": seed}) for arm in arms for seed in seeds]


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """The seeds meant by a number of them, by text, or by the seeds themselves.

    >>> seed_list(3), seed_list("3"), seed_list("0,1,42"), seed_list("3-5"), seed_list([7])
    ([0, 1, 2], [0, 1, 2], [0, 1, 42], [3, 4, 5], [7])
    """
    found: Iterable[Any]
    if isinstance(seeds, int):
        found = range(seeds)
    elif isinstance(seeds, str):
        found = _seeds_in(seeds.strip())
    else:
        found = seeds
    chosen = list(found)
    fits = chosen and all(type(seed) is int and seed >= 0 for seed in chosen) and len(set(chosen)) == len(chosen)
    if isinstance(seeds, bool) or not fits:
        raise ConfigError(
            f"--seeds: {seeds!r} does not fit; give how many (10 means 0 to 9), which (0,1,42), or a range (3-7)"
        )
    return chosen


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
