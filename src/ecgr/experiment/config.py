"""An experiment: everything that decides a run's numbers, frozen, strict, TOML in and out.

Each section names an entry of a table and gives its parameters, plus a few keys of its own. A file or override that
does not fit is refused with all its problems at once, before any data, directory or process is touched.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, Algorithm, Entry, ServerRule, compose
from ecgr.core.regulators import REGULATORS, Regulator
from ecgr.errors import ConfigError
from ecgr.experiment.combinations import combination_problems
from ecgr.experiment.objects import (
    OwnModel,
    completed,
    description,
    is_algorithm,
    own_description,
    plain_fields,
    undressed,
)
from ecgr.experiment.optimizers import OPTIMIZERS, OptimizerFactory
from ecgr.experiment.schedules import SCHEDULES, Schedule
from ecgr.experiment.schema import parameters_of, problems_with, validated
from ecgr.experiment.sections import DataSettings, FederationSettings, ModelChoice, PartitionSettings, RunSettings
from ecgr.files import to_toml
from ecgr.tables import Table, unknown
from ecgr.tasks.data import DATASETS, DatasetSource
from ecgr.tasks.losses import LOSSES, Loss, as_loss
from ecgr.tasks.models import MODELS
from ecgr.tasks.partitioners import PARTITIONERS, Partitioner
from ecgr.tasks.partitioners.partition import GroupPartitioner
from ecgr.tasks.task import Task, TaskIdentity

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
DEFAULT_CLIENTS = 10
PACKAGED = Path(__file__).parents[1] / "experiments"
CHECKED_OUT = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True, slots=True)
class Section:
    """How one section of a config is read: a table to choose from by name, keys of its own, or both.

    Attributes:
        default: the name that is chosen where none is given; None where the section may be left out.
        needs: what an object that stands in the place of a name must have.
    """

    table: Table[Any] | None = None
    default: str | None = None
    settings: Callable[..., Any] | None = None
    needs: tuple[str, ...] = ("__call__",)

    def entry(self, chosen: Any) -> Callable[..., Any] | None:
        """What makes the chosen part from a config's keys; None where it is an object already, or nothing."""
        if isinstance(chosen, str):
            return self.table[chosen] if self.table is not None and chosen in self.table else None
        return chosen if isinstance(chosen, type) else None

    def allowed(self, chosen: Any) -> set[str]:
        """The keys that may stand in this section when ``chosen`` is."""
        keys = set(parameters_of(self.settings)) if self.settings else set()
        if self.table is not None:
            entry = self.entry(chosen)
            keys |= {"name", *(() if entry is None else parameters_of(entry))}
        return keys


SECTIONS: Mapping[str, Section] = {
    "data": Section(DATASETS, "digits", DataSettings, needs=("load",)),
    "partition": Section(PARTITIONERS, "dirichlet", PartitionSettings),
    "model": Section(MODELS, "lenet"),
    "loss": Section(LOSSES),
    "algorithm": Section(ALGORITHMS, "fedavg", needs=()),
    "server": Section(SERVER_RULES, "average", needs=("step",)),
    "regulator": Section(REGULATORS, "ecgr"),
    "optimizer": Section(OPTIMIZERS, "sgd", needs=("build", "lr", "effective_momentum")),
    "schedule": Section(SCHEDULES, "constant", needs=("factor_at",)),
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
    model: ModelChoice | OwnModel
    loss: Loss | None
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
            chosen = values.get("name", spec.default)
            entry = spec.entry(chosen)
            if entry is None:
                return chosen
            return entry(**{k: v for k, v in values.items() if k in parameters_of(entry)})

        def settings(section: str) -> Any:
            make = SECTIONS[section].settings
            assert make is not None
            return make(**{k: v for k, v in raw.get(section, {}).items() if k in parameters_of(make)})

        source, loss = component("data"), component("loss")
        experiment = cls(
            source=source,
            data=settings("data"),
            partitioner=component("partition"),
            partition=_counted(settings("partition"), component("partition")),
            model=_model(source, raw.get("model", {})),
            loss=None if loss is None else as_loss(loss),
            correction=completed(component("algorithm")),
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
        """The whole config as plain values, defaults included; `from_dict` gives the same experiment back.

        Objects that are in no table are described by class, fields and a hash of their source.
        """
        data = {k: v for k, v in plain_fields(self.data).items() if k != "metrics" or v is not None}
        return {
            "data": {**_source_description(self.source), **data},
            "partition": {**description(PARTITIONERS, self.partitioner), **plain_fields(self.partition)},
            "model": dict(self.model.described),
            **({} if self.loss is None else {"loss": description(LOSSES, self.loss)}),
            "algorithm": description(ALGORITHMS, self.correction),
            "server": description(SERVER_RULES, self.server),
            "regulator": description(REGULATORS, self.regulator),
            "optimizer": description(OPTIMIZERS, self.optimizer),
            "schedule": description(SCHEDULES, self.schedule),
            "federation": plain_fields(self.federation),
            "run": plain_fields(self.run),
        }

    def to_toml(self) -> str:
        """The whole config as TOML; keys without a value are left out."""
        return to_toml(self.to_dict())

    def raw(self) -> dict[str, dict[str, Any]]:
        """The whole config as `from_dict` takes it: as `to_dict`, with objects that are in no table as they are."""
        raw = self.to_dict()
        parts: dict[str, tuple[Table[Any], Any]] = {
            "partition": (PARTITIONERS, self.partitioner),
            "loss": (LOSSES, self.loss),
            "algorithm": (ALGORITHMS, self.correction),
            "server": (SERVER_RULES, self.server),
            "regulator": (REGULATORS, self.regulator),
            "optimizer": (OPTIMIZERS, self.optimizer),
            "schedule": (SCHEDULES, self.schedule),
        }
        for section, (table, part) in parts.items():
            if part is not None and table.name_of(undressed(part)) is None:
                described, kept = own_description(part), raw[section]
                raw[section] = {k: v for k, v in kept.items() if k not in described} | {"name": part}
        if isinstance(self.source, Task):
            raw["data"] = {k: v for k, v in raw["data"].items() if k != "sha256"} | {"name": self.source}
        if isinstance(self.model, OwnModel):
            raw["model"] = {"name": self.model.make}
        return raw

    def replace(self, overrides: Mapping[str, Any]) -> "Experiment":
        """The same experiment with some dotted keys changed.

        >>> load("quickstart").replace({"run.seed": 7}).run.seed
        7
        """
        return Experiment.from_dict(override(self.raw(), overrides))

    def without_data(self) -> "Experiment":
        """The same settings for those who have the data and the model already: it goes to every worker process."""
        changes: dict[str, Any] = {}
        if isinstance(self.source, Task):
            changes["source"] = self.source.identity
        if isinstance(self.model, OwnModel):
            changes["model"] = OwnModel(None, self.model.described)
        return dataclasses.replace(self, **changes) if changes else self

    def key(self) -> str:
        """A short name for the whole config minus seed and run name: runs with the same key are repetitions."""
        config = self.to_dict()
        config["run"] = {k: v for k, v in config["run"].items() if k not in {"seed", "name"}}
        return sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def _counted(settings: PartitionSettings, partitioner: Partitioner) -> PartitionSettings:
    """With a number of clients wherever neither the data's groups nor a file give one."""
    if settings.clients is not None or settings.file is not None or isinstance(partitioner, GroupPartitioner):
        return settings
    return dataclasses.replace(settings, clients=DEFAULT_CLIENTS)


def _model(source: Any, values: Mapping[str, Any]) -> ModelChoice | OwnModel:
    """The model that a config names; a task brings its own."""
    chosen = values.get("name", source.model if isinstance(source, Task) else SECTIONS["model"].default)
    if not isinstance(chosen, str):
        return OwnModel.of(chosen)
    given = {name: value for name, value in values.items() if name != "name"}
    return ModelChoice(name=chosen, parameters=validated(MODELS[chosen], given))


def _source_description(source: Any) -> dict[str, Any]:
    named = source.identity if isinstance(source, Task) else source
    return plain_fields(named) if isinstance(named, TaskIdentity) else description(DATASETS, named)


def load(
    source: str | Path | Mapping[str, Any] | Task | Experiment, overrides: Mapping[str, Any] | None = None
) -> Experiment:
    """An experiment from a preset's name, a TOML file, a nested dict or a `Task`, with dotted keys changed.

    >>> load("quickstart", {"run.seed": 1}).run.seed
    1
    """
    return Experiment.from_dict(override(read(source), overrides or {}))


SHORTHANDS = {"rounds": "federation.rounds", "lr": "optimizer.lr", "batch_size": "federation.batch_size"}
"""What is said so often in Python that it has a short name."""


def changes_of(settings: Mapping[str, Any] | None = None, **shorthands: Any) -> dict[str, Any]:
    """Dotted config keys from ``settings`` and from what is given by a short name; None is nothing.

    >>> changes_of({"run.seed": 1}, rounds=5, lr=None)
    {'run.seed': 1, 'federation.rounds': 5}
    """
    given = {SHORTHANDS[name]: value for name, value in shorthands.items() if value is not None}
    twice = sorted(set(given) & set(settings or {}))
    if twice:
        raise ConfigError(f"{twice[0]}: is given twice, in settings and by its short name")
    return {**(settings or {}), **given}


def read(source: str | Path | Mapping[str, Any] | Task | Experiment) -> dict[str, Any]:
    """The nested dict behind a preset's name, a TOML file, a dict, a task or an experiment, not yet checked."""
    if isinstance(source, Experiment):
        return source.raw()
    if isinstance(source, Task):
        return {"data": {"name": source}, "partition": source.partition_section, "run": {"name": _as_name(source.name)}}
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
        if name == "name" and table is not None and (not isinstance(value, str) or value in table):
            result[section] = values = _without_old_parameters(SECTIONS[section], values, value)
        values[name] = value
    return result


def _without_old_parameters(section: Section, values: Mapping[str, Any], chosen: Any) -> dict[str, Any]:
    before = values.get("name", section.default)
    entry = section.entry(before)
    if before is chosen or before == chosen or entry is None:
        return dict(values)
    old, taken = parameters_of(entry), section.allowed(chosen)
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
        chosen = values.get("name", section.default) if section.table is not None else None
        if isinstance(chosen, str) and section.table is not None and chosen not in section.table:
            found.append(unknown(f"{name}.name", chosen, section.table, kind=section.table.kind))
            continue
        if section.table is not None and chosen is None and values:
            found.append(f"{name}.name: missing; give one of: {', '.join(sorted(section.table))}")
            continue
        if chosen is not None and not isinstance(chosen, str):
            found += _unfit(name, section, chosen)
        found += [_unknown_key(name, section, chosen, key) for key in values if key not in section.allowed(chosen)]
        for part in (section.entry(chosen), section.settings):
            if part is not None:
                found += problems_with(name, part, values)
    return found


def _unfit(name: str, section: Section, chosen: Any) -> list[str]:
    """Why an object cannot stand in the place of a name."""
    if isinstance(chosen, bool | int | float | list | dict | tuple):
        kind = "name" if section.table is None else section.table.kind
        return [f"{name}.name: {chosen!r} does not fit; give the name of a {kind}, or an object that is one"]
    lacking = [need for need in section.needs if not hasattr(chosen, need)]
    if section.table is ALGORITHMS and not is_algorithm(chosen):
        lacking = ["method of an algorithm"]
    return [f"{name}.name: {type(chosen).__name__} has no {lacking[0]}; it cannot be a {name}"] if lacking else []


def _unknown_key(name: str, section: Section, chosen: Any, key: str) -> str:
    if chosen is not None and not isinstance(chosen, str | type):
        return f"{name}.{key}: {type(chosen).__name__} is given as an object; give it its {key} when you make it"
    line = unknown(f"{name}.{key}", key, section.allowed(chosen))
    others = {k: n for n in reversed(list(section.table or {})) if n != chosen for k in section.allowed(n)}
    nearest = get_close_matches(key, others.keys() - section.allowed(chosen), n=1)
    return line + "".join(f" ({near!r} is a key of {others[near]})" for near in nearest)
