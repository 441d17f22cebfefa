"""An experiment: everything that decides a run's numbers, frozen, strict, TOML in and out.

Each section names an entry of a table and gives its parameters, plus a few keys of its own. A file or override that
does not fit is refused with all its problems at once, before any data, directory or process is touched.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, Algorithm, Entry, ServerRule, compose
from ecgr.core.regulators import REGULATORS, Regulator
from ecgr.errors import ConfigError
from ecgr.experiment.combinations import combination_problems
from ecgr.experiment.optimizers import OPTIMIZERS, OptimizerFactory
from ecgr.experiment.schedules import SCHEDULES, Schedule
from ecgr.experiment.schema import parameters_of, problems_with, validated
from ecgr.experiment.sections import DataSettings, FederationSettings, ModelChoice, PartitionSettings, RunSettings
from ecgr.tables import unknown
from ecgr.tasks.data import DATASETS, DatasetSource
from ecgr.tasks.models import MODELS
from ecgr.tasks.partitioners import PARTITIONERS, Partitioner
from ecgr.tasks.partitioners.partition import GroupPartitioner

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
DEFAULT_CLIENTS = 10
PACKAGED = Path(__file__).parents[1] / "experiments"
CHECKED_OUT = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True, slots=True)
class Section:
    """How one section of a config is read: a table to choose from by name, keys of its own, or both."""

    table: Mapping[str, Callable[..., Any]] | None = None
    kind: str = ""
    default: str = ""
    settings: Callable[..., Any] | None = None

    def allowed(self, name: str | None) -> set[str]:
        """The keys that may stand in this section when ``name`` is chosen."""
        keys = set(parameters_of(self.settings)) if self.settings else set()
        if self.table is not None:
            keys |= {"name", *(parameters_of(self.table[name]) if name is not None and name in self.table else ())}
        return keys


SECTIONS: Mapping[str, Section] = {
    "data": Section(DATASETS, "data set", "digits", DataSettings),
    "partition": Section(PARTITIONERS, "partitioner", "dirichlet", PartitionSettings),
    "model": Section(MODELS, "model", "lenet"),
    "algorithm": Section(ALGORITHMS, "algorithm", "fedavg"),
    "server": Section(SERVER_RULES, "server rule", "average"),
    "regulator": Section(REGULATORS, "regulator", "ecgr"),
    "optimizer": Section(OPTIMIZERS, "optimizer", "sgd"),
    "schedule": Section(SCHEDULES, "schedule", "constant"),
    "federation": Section(settings=FederationSettings),
    "run": Section(settings=RunSettings),
}


@dataclass(frozen=True, slots=True)
class Experiment:
    """One fully specified run.

    >>> Experiment.from_dict({"regulator": {"name": "ecgr", "beta": 0.5}}).regulator
    ECGR(beta=0.5, keep=0.5)
    """

    source: DatasetSource
    data: DataSettings
    partitioner: Partitioner
    partition: PartitionSettings
    model: ModelChoice
    correction: Entry
    server: ServerRule
    regulator: Regulator
    optimizer: OptimizerFactory
    schedule: Schedule
    federation: FederationSettings
    run: RunSettings

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "Experiment":
        """Check a nested dict and build the experiment; raises one `ConfigError` with every problem."""
        problems = _problems(raw)
        if problems:
            raise ConfigError(*problems)

        def component(section: str) -> Any:
            spec, values = SECTIONS[section], raw.get(section, {})
            chosen = (spec.table or {})[values.get("name", spec.default)]
            return chosen(**{k: v for k, v in values.items() if k in parameters_of(chosen)})

        def settings(section: str) -> Any:
            make = SECTIONS[section].settings
            assert make is not None
            return make(**{k: v for k, v in raw.get(section, {}).items() if k in parameters_of(make)})

        model = {"name": SECTIONS["model"].default, **raw.get("model", {})}
        given = {name: value for name, value in model.items() if name != "name"}
        experiment = cls(
            source=component("data"),
            data=settings("data"),
            partitioner=component("partition"),
            partition=_counted(settings("partition"), component("partition")),
            model=ModelChoice(name=model["name"], parameters=validated(MODELS[model["name"]], given)),
            correction=component("algorithm"),
            server=component("server"),
            regulator=component("regulator"),
            optimizer=component("optimizer"),
            schedule=component("schedule"),
            federation=settings("federation"),
            run=settings("run"),
        )
        clashes = combination_problems(experiment.correction, experiment.server, experiment.optimizer, experiment.run)
        if found := list(clashes):
            raise ConfigError(*found)
        available = getattr(experiment.source, "train_samples", None)
        clients = experiment.partition.clients
        if available is not None and clients is not None and clients > available:
            raise ConfigError(f"partition.clients: {clients} clients cannot share {available} training samples")
        return experiment

    @property
    def algorithm(self) -> Algorithm:
        """What ``[algorithm]`` and ``[server]`` say together."""
        return compose(self.correction, self.server)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The whole config as plain values, defaults included; `from_dict` gives the same experiment back."""

        def named(table: Mapping[str, Callable[..., Any]], part: Any) -> dict[str, Any]:
            name = next(name for name, entry in table.items() if entry is type(part))
            return {"name": name, **asdict(part)}

        return {
            "data": {**named(DATASETS, self.source), **asdict(self.data)},
            "partition": {**named(PARTITIONERS, self.partitioner), **asdict(self.partition)},
            "model": {"name": self.model.name, **self.model.parameters},
            "algorithm": named(ALGORITHMS, self.correction),
            "server": named(SERVER_RULES, self.server),
            "regulator": named(REGULATORS, self.regulator),
            "optimizer": named(OPTIMIZERS, self.optimizer),
            "schedule": named(SCHEDULES, self.schedule),
            "federation": asdict(self.federation),
            "run": asdict(self.run),
        }

    def to_toml(self) -> str:
        """The whole config as TOML; keys without a value are left out."""
        lines = []
        for section, values in self.to_dict().items():
            lines += [
                f"[{section}]",
                *(f"{k} = {_toml_value(v)}" for k, v in values.items() if v is not None),
                "",
            ]
        return "\n".join(lines)

    def replace(self, overrides: Mapping[str, Any]) -> "Experiment":
        """The same experiment with some dotted keys changed.

        >>> load("quickstart").replace({"run.seed": 7}).run.seed
        7
        """
        return Experiment.from_dict(override(self.to_dict(), overrides))

    def key(self) -> str:
        """A short name for the whole config minus seed and run name: runs with the same key are repetitions."""
        config = self.to_dict()
        config["run"] = {k: v for k, v in config["run"].items() if k not in {"seed", "name"}}
        return sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def _counted(settings: PartitionSettings, partitioner: Partitioner) -> PartitionSettings:
    """With a number of clients wherever neither the data's groups nor a file give one."""
    if settings.clients is not None or settings.file is not None or isinstance(partitioner, GroupPartitioner):
        return settings
    return replace(settings, clients=DEFAULT_CLIENTS)


def load(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment from a preset's name, a TOML file or a nested dict, with dotted keys changed.

    >>> load("quickstart", {"run.seed": 1}).run.seed
    1
    """
    return Experiment.from_dict(override(read(source), overrides or {}))


def read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict behind a preset's name, a TOML file or a dict, not yet checked."""
    if isinstance(source, Mapping):
        return {section: dict(values) if isinstance(values, Mapping) else values for section, values in source.items()}
    path = _find(source)
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes; a config is a page, not a data file")
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
        if any(line.partition("=")[0].count(".") > MAX_DEPTH for line in text.splitlines()):
            raise RecursionError  # the parser takes a time quadratic in the depth of a dotted key
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply for a config") from None
    if "run" not in raw or (isinstance(raw["run"], dict) and "name" not in raw["run"]):
        raw.setdefault("run", {})["name"] = _as_name(path.stem)
    return raw


def _as_name(stem: str) -> str:
    """A file's name as a run's name: what may not stand in one becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:64] or "run"


def _toml_value(value: Any) -> str:
    """JSON is TOML but for characters that JSON writes as surrogates, and one control character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def presets() -> dict[str, Path]:
    """The named experiments that come with the package."""
    folder = PACKAGED if PACKAGED.is_dir() else CHECKED_OUT
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def _find(source: str | Path) -> Path:
    known = presets()
    if str(source) in known:
        return known[str(source)]
    path = Path(source)
    if path.is_file():
        return path
    raise ConfigError(unknown("experiment", str(source), known, kind="preset or file"))


def override(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Set dotted keys. Choosing another name in a section drops the parameters of the old choice.

    One that both take, and that was set to something else than the old choice's default, stays; so does a key that
    neither of the two takes, and is refused when the experiment is built.

    >>> override({"regulator": {"name": "ecgr", "beta": 0.2}}, {"regulator.name": "none"})
    {'regulator': {'name': 'none'}}
    """
    result: dict[str, Any] = {s: dict(v) if isinstance(v, Mapping) else v for s, v in raw.items()}
    # Names first: what a section may hold depends on its name, and a parameter set by hand must not be dropped.
    for key, value in sorted(changes.items(), key=lambda item: not item[0].endswith(".name")):
        section, _, name = key.partition(".")
        if not name:
            raise ConfigError(f"{key}: keys look like section.key, for example regulator.beta")
        values = result.setdefault(section, {})
        if not isinstance(values, dict):
            continue  # reported as a section that is not a table
        table = SECTIONS[section].table if section in SECTIONS else None
        if name == "name" and table is not None and isinstance(value, str) and value in table:
            result[section] = values = _without_old_parameters(SECTIONS[section], values, value)
        values[name] = value
    return result


def _without_old_parameters(section: Section, values: Mapping[str, Any], chosen: str) -> dict[str, Any]:
    before = values.get("name", section.default)
    if section.table is None or before == chosen or not isinstance(before, str) or before not in section.table:
        return dict(values)
    old, taken = parameters_of(section.table[before]), section.allowed(chosen)
    return {k: v for k, v in values.items() if k not in old or (k in taken and v != old[k].default)}


SWEPT = ("grid", "part", "base")
"""What only a sweep's file has."""


def _problems(raw: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a nested dict, one line each."""
    if swept := [name for name in SWEPT if name in raw]:
        return [f"{swept[0]}: this is a sweep, not one experiment; give it to `ecgr sweep`"]
    found = [unknown(name, name, SECTIONS, kind="section") for name in raw if name not in SECTIONS]
    for name, section in SECTIONS.items():
        values = raw.get(name, {})
        if not isinstance(values, Mapping):
            found.append(f"{name}: must be a section with keys, as in [{name}], not {values!r}")
            continue
        chosen = None
        if section.table is not None:
            chosen = values.get("name", section.default)
            if not isinstance(chosen, str) or chosen not in section.table:
                found.append(unknown(f"{name}.name", str(chosen), section.table, kind=section.kind))
                continue
        found += [_unknown_key(name, section, chosen, key) for key in values if key not in section.allowed(chosen)]
        parts = ([section.table[chosen]] if section.table and chosen else []) + (
            [section.settings] if section.settings else []
        )
        for part in parts:
            found += problems_with(name, part, values)
    return found


def _unknown_key(name: str, section: Section, chosen: str | None, key: str) -> str:
    line = unknown(f"{name}.{key}", key, section.allowed(chosen))
    others = {k: n for n in reversed(list(section.table or {})) if n != chosen for k in section.allowed(n)}
    nearest = get_close_matches(key, others.keys() - section.allowed(chosen), n=1)
    return line + "".join(f" ({near!r} is a key of {others[near]})" for near in nearest)
