"""From run directories to what a comparison needs: who is paired with whom, and what else sets runs apart."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ecgr.analysis.metrics import RunSummary
from ecgr.errors import ConfigError, DataError
from ecgr.runs.record import RunRecord

APART = {"run.seed", "run.name"}
"""Keys that never set two settings apart: seeds are paired, names are labels."""

Flat = dict[str, Any]


def find_runs(directories: Iterable[str | Path]) -> list[RunRecord]:
    """The runs in or below ``directories``, in order of path; raises `DataError` where there is none."""
    records = []
    for directory in map(Path, directories):
        paths = [directory] if RunRecord.is_run(directory) else sorted(p.parent for p in directory.rglob("run.json"))
        if not paths:
            raise DataError(f"{directory}: no run in or below it; `ecgr run` and `ecgr compare` make them")
        records += [RunRecord.open(path) for path in paths]
    return records


class Label(NamedTuple):
    """What a run is called in a comparison: only what sets the runs apart."""

    setting: str
    algorithm: str
    regulator: str


def labels(records: Sequence[RunRecord], treatment: Sequence[str] = ()) -> list[Label]:
    """A label for each run, such that runs to be compared share setting and algorithm.

    Keys of the ``treatment`` are what is compared, like the regulator, instead of what must be alike.
    """
    configs = [flat(record.config) for record in records]
    missing = [key for key in treatment if not any(key in config for config in configs)]
    if missing:
        raise ConfigError(f"--treatment: no run has {missing[0]}; give config keys, for example run.step_control")
    return [_label(config, configs, treatment) for config in configs]


def summary(label: Label, seed: int, rounds: Sequence[Mapping[str, Any]]) -> RunSummary:
    """A run as a comparison sees it."""
    return RunSummary(
        algorithm=label.algorithm,
        regulator=label.regulator,
        seed=seed,
        accuracy=tuple(row["accuracy"] for row in rounds),
        worst_client=tuple(row.get("worst_client") for row in rounds),
        setting=label.setting,
    )


def summarise(records: Sequence[RunRecord], treatment: Sequence[str] = ()) -> list[RunSummary]:
    """One summary a run, labelled by `labels`."""
    named = zip(records, labels(records, treatment), strict=True)
    return [summary(label, record.seed, record.rounds) for record, label in named]


def varying_keys(configs: Sequence[Flat]) -> list[str]:
    """The keys, seeds and names apart, whose values differ between runs that have them."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in APART and len({repr(c[key]) for c in configs if key in c}) > 1]


def _label(config: Flat, configs: Sequence[Flat], treatment: Sequence[str]) -> Label:
    """Setting, algorithm and regulator of one run, each naming only what varies among the runs."""
    others = [
        key
        for key in varying_keys(configs)
        if key.partition(".")[0] not in {"algorithm", "regulator"} and key not in treatment
    ]
    several_sets = "data.name" in others
    setting = ", ".join(
        f"{key}={config[key]}"
        for key in others
        if key in config and not (several_sets and key != "data.name" and _goes_with_data(key, configs))
    )
    regulator = _component("regulator", config, configs, treatment)
    given = [f"{key.partition('.')[2]}={config[key]}" for key in treatment if _unusual(key, config, configs)]
    return Label(setting, _component("algorithm", config, configs, treatment), ", ".join([regulator, *given]))


def _goes_with_data(key: str, configs: Sequence[Flat]) -> bool:
    """Whether the data set's name says it all: its model, its share, its number of rounds."""
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
        if other[f"{section}.name"] == name
    ]
    parameters = [f"{key.partition('.')[2]}={config[key]}" for key in varying_keys(alike) if key in config]
    return f"{name}({', '.join(parameters)})" if parameters else name


def flat(config: Mapping[str, Mapping[str, Any]]) -> Flat:
    """A config by dotted keys.

    >>> flat({"run": {"seed": 0}})
    {'run.seed': 0}
    """
    return {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}
