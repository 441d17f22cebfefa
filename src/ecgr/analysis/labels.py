"""What sets runs apart, as short names: a run's setting, algorithm, regulator and method."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from ecgr.analysis.metrics import method_label
from ecgr.runs.design import refuse_treatment

APART = {"run.seed", "run.name"}
"""Keys that never set two settings apart: seeds are paired, names are labels."""
COMPARED = ("loss", "algorithm", "server", "regulator")
"""Sections of a config that make up the method: what is compared, not what must be alike."""
SERVER_LR = ("server.lr", "algorithm.server_lr")
"""Keys that hold what the server's step is multiplied by."""

Config = Mapping[str, Mapping[str, Any]]
Flat = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Labels:
    """A run's names, each naming only what varies among the runs."""

    setting: str
    algorithm: str
    regulator: str
    method: str


def labels(
    configs: Sequence[Config],
    methods: Sequence[str | None],
    treatment: Sequence[str] = (),
    tuned: Sequence[str] = (),
) -> list[Labels]:
    """The names of each of several runs; ``methods`` are the ones their records have, if they have one.

    Keys of the ``treatment`` are compared as the regulator is; ``tuned`` keys belong to each method and are not named.
    """
    refuse_treatment(treatment, {key for config in configs for key in flat(config)})
    own = [{key: value for key, value in flat(config).items() if key not in tuned} for config in configs]
    return [_labels(config, own, treatment, method) for config, method in zip(own, methods, strict=True)]


def tuned_label(config: Config, tuned: Sequence[str]) -> str:
    """What was chosen for a method and is no part of it: of local training, say.

    >>> tuned_label({"optimizer": {"lr": 0.1}, "algorithm": {"mu": 1.0}}, ["optimizer.lr", "algorithm.mu"])
    'optimizer.lr=0.1'
    """
    own = flat(config)
    return ", ".join(f"{key}={own[key]}" for key in tuned if key in own and key.partition(".")[0] not in COMPARED)


def varying_keys(configs: Sequence[Flat]) -> list[str]:
    """The keys, seeds and names apart, whose values differ between runs that have them."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in APART and len({repr(c[key]) for c in configs if key in c}) > 1]


def flat(config: Config) -> Flat:
    """Dotted keys.

    >>> flat({"run": {"seed": 0}})
    {'run.seed': 0}
    """
    return {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}


def server_lr(config: Config) -> float:
    """What the server's step is multiplied by."""
    values = flat(config)
    return prod(float(values.get(key, 1.0)) for key in SERVER_LR)


def without_server_lr(config: Config) -> Config:
    """The config of a point of the length curve, as the baseline's own."""
    return {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in SERVER_LR}
        for section, values in config.items()
    }


def _labels(config: Flat, configs: Sequence[Flat], treatment: Sequence[str], method: str | None) -> Labels:
    varying = [key for key in _telling_keys(configs) if key not in treatment]
    setting = ", ".join(
        f"{key}={config[key]}" for key in varying if key in config and key.partition(".")[0] not in COMPARED
    )
    given = [f"{key.partition('.')[2]}={config[key]}" if _unusual(key, config, configs) else "" for key in treatment]
    regulator = ", ".join([_component("regulator", config, configs, treatment), *filter(None, given)])
    algorithm = _component("algorithm", config, configs, treatment)
    for section, form in (("loss", "{algorithm}[{own}]"), ("server", "{algorithm}/{own}")):
        if f"{section}.name" in config and any(key.startswith(f"{section}.") for key in varying):
            algorithm = form.format(algorithm=algorithm, own=_component(section, config, configs, treatment))
    besides = [
        text for key, text in zip(treatment, given, strict=True) if text and key.partition(".")[0] not in COMPARED
    ]
    named = ", ".join([method, *besides]) if method else method_label(algorithm, regulator)
    return Labels(setting, algorithm, regulator, named)


def _telling_keys(configs: Sequence[Flat]) -> list[str]:
    """The varying keys, without those of which the data set's name says it all."""
    varying = varying_keys(configs)
    if "data.name" not in varying:
        return varying
    return [key for key in varying if key == "data.name" or not _goes_with_data(key, configs)]


def _goes_with_data(key: str, configs: Sequence[Flat]) -> bool:
    """Whether runs of one data set agree in it: its model, its share, its number of rounds."""
    values: dict[Any, set[str]] = {}
    for config in configs:
        values.setdefault(config["data.name"], set()).add(repr(config.get(key)))
    return all(len(own) == 1 for own in values.values())


def _unusual(key: str, config: Flat, configs: Sequence[Flat]) -> bool:
    """Whether a run's value differs from the one that most runs have."""
    if key not in config:
        return False
    usual, _ = Counter(repr(other[key]) for other in configs if key in other).most_common(1)[0]
    return repr(config[key]) != usual


def _component(section: str, config: Flat, configs: Sequence[Flat], treatment: Sequence[str]) -> str:
    """A component's name, with the parameters that vary among the runs that use it."""
    name = str(config[f"{section}.name"])
    alike = [
        {key: value for key, value in other.items() if key.startswith(f"{section}.") and key not in treatment}
        for other in configs
        if other.get(f"{section}.name") == name
    ]
    parameters = [f"{key.partition('.')[2]}={config[key]}" for key in varying_keys(alike) if key in config]
    return f"{name}({', '.join(parameters)})" if parameters else name
