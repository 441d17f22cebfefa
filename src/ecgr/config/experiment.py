"""An experiment: everything that decides a run's numbers, frozen, strict, TOML in and out.

Each section names an entry of a table and gives its parameters, plus a few keys of its own. All that is wrong
with a config is said at once, before any data, directory or process is touched.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any, Final

from ecgr.algorithms import Algorithm, Entry, HeadOnly, ServerRule, compose
from ecgr.algorithms.parts import PARTS, Off
from ecgr.code import qualified_name
from ecgr.component import Module
from ecgr.config.methods import clash, name_of
from ecgr.config.optimizers import CONSTANT_RATE, OptimizerFactory, Schedule
from ecgr.config.registry import (
    GIVEN_BY_DATA,
    LEFT_OUT,
    SECTIONS,
    DataSettings,
    FederationSettings,
    PartitionSettings,
    RunSettings,
    override,
    parameters_of,
    problems,
    validate,
)
from ecgr.config.user_code import complete, description, plain, plain_fields, unwrap
from ecgr.core.geometry import Regulator
from ecgr.errors import ConfigError
from ecgr.files import to_toml
from ecgr.tables import Table, shown, unknown
from ecgr.tasks.data import DatasetSource
from ecgr.tasks.losses import Loss, as_loss
from ecgr.tasks.models import MODELS
from ecgr.tasks.partition import Groups, Partitioner
from ecgr.tasks.task import Task, TaskIdentity

DEFAULT_CLIENTS = 10
OWN: Final = "own"
"""The value of ``data.score`` that has each client scored on its own samples."""
MAX_BYTES = 1_000_000
MAX_DEPTH = 32
PACKAGED = Path(__file__).parents[1] / "experiments"
CHECKED_OUT = Path(__file__).parents[3] / "experiments"


@dataclass(frozen=True)
class ModelChoice:
    """How the model is made, and how records describe it: an entry of the table by name, or a user's own.

    A user's is a function that makes one, or a module to start from. A function may ask for what the data's shape says
    (``channels``, ``classes``, …) by the names of its arguments. ``trainable`` says which parameters are trained; None
    leaves them as they are.
    """

    given: Any
    described: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    trainable: Any = None

    @property
    def make(self) -> Any:
        return MODELS[self.given] if isinstance(self.given, str) else self.given

    def build(self, shape: Mapping[str, int]) -> Module:
        """A fresh module; torch's generator decides its weights, unless a module is given as it is."""
        if _is_module(self.make):
            given: Module = deepcopy(self.make)
            return given
        if missing := sorted(_needs(self.make, isinstance(self.given, str)) - set(shape)):
            advice, what = "give a default", "the model"
            if isinstance(self.given, str):
                fitting = sorted(name for name, make in MODELS.items() if _needs(make, named=True) <= set(shape))
                advice, what = f"models that fit: {', '.join(fitting) or 'none'}", self.given
            known = ", ".join(sorted(shape)) or "nothing"
            raise ConfigError(f"model.name: {what} needs {', '.join(missing)}, and the data have {known}; {advice}")
        wanted = signature(self.make).parameters
        made: Module = self.make(**{name: size for name, size in shape.items() if name in wanted}, **self.parameters)
        return made


@dataclass(frozen=True)
class Experiment:
    """One fully specified run; ``parts`` are those that are on, by section.

    >>> Experiment.from_dict({"regulator": {"name": "ecgr", "beta": 0.5}}).regulator
    ECGR(beta=0.5, keep=0.5)
    """

    source: DatasetSource
    data: DataSettings
    partitioner: Partitioner
    partition: PartitionSettings
    model: ModelChoice
    loss: Loss | None
    correction: Entry
    server: ServerRule
    regulator: Regulator
    optimizer: OptimizerFactory
    schedule: Schedule
    federation: FederationSettings
    run: RunSettings
    parts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> "Experiment":
        """Check a nested dict and build the experiment; raises one `ConfigError` with every problem."""
        found = problems(raw)
        if found:
            raise ConfigError(*found)

        made = {name: section.make(name, raw.get(name)) for name, section in SECTIONS.items() if name != "model"}
        part, settings = ({name: both[place] for name, both in made.items()} for place in (0, 1))
        source = part["data"]
        if settings["data"].redraw and hasattr(source, "split_seed"):
            source = dataclasses.replace(source, split_seed=settings["run"].seed)
        experiment = cls(
            source=source,
            data=settings["data"],
            partitioner=part["partition"],
            partition=_count(settings["partition"], part["partition"]),
            model=_model(source, raw.get("model", {})),
            loss=None if part["loss"] is None else as_loss(part["loss"]),
            correction=complete(part["algorithm"]),
            server=part["server"],
            regulator=part["regulator"],
            optimizer=part["optimizer"],
            schedule=part["schedule"],
            federation=settings["federation"],
            run=settings["run"],
            parts={name: part[name] for name in PARTS if not isinstance(part[name], Off)},
        )
        if experiment.partition.test_share or any(getattr(p, "own_data", False) for p in experiment.parts.values()):
            experiment = dataclasses.replace(experiment, data=dataclasses.replace(experiment.data, score=OWN))
        clashes = [_clash(experiment.correction, experiment.server, experiment.optimizer)]
        clashes += [made.clash(experiment) for made in experiment.parts.values()]
        if isinstance(experiment.correction, HeadOnly) and "head" not in experiment.parts:
            clashes.append("head.name: head_only trains nothing; give it a head, as in head_only@lda")
        if found := [line for line in clashes if line is not None]:
            raise ConfigError(*found)
        available, clients = getattr(source, "train_samples", None), experiment.partition.clients
        if available is not None and clients is not None and clients > available:
            raise ConfigError(f"partition.clients: {clients} clients cannot share {available} training samples")
        return experiment

    @cached_property
    def algorithm(self) -> Algorithm:
        """What ``[algorithm]`` and ``[server]`` say together."""
        return compose(self.correction, self.server)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The whole config as plain values, defaults included; `from_dict` gives the same experiment back.

        Objects that are in no table are described by class and fields.
        """
        return self._config(_described)

    def to_toml(self) -> str:
        """The whole config as TOML; keys without a value are left out."""
        return to_toml(self.to_dict())

    def raw(self) -> dict[str, dict[str, Any]]:
        """The whole config as `from_dict` takes it: as `to_dict`, with objects that are in no table as they are."""
        return self._config(_kept)

    def _config(self, told: Callable[[Table[Any], Any], dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """By section, with what is ``told`` of each part that is chosen from a table."""
        parts = {"data": self.source, "partition": self.partitioner, "algorithm": self.correction, **self.parts}
        config = {}
        for name, section in SECTIONS.items():
            part = parts.get(name, getattr(self, name, None))
            own = getattr(self, name, None)
            chosen = told(section.table, part) if section.table is not None and part is not None else {}
            if section.settings is not None and type(own) is section.settings:
                known = parameters_of(section.settings)
                settings = plain_fields(own).items()
                chosen |= {k: v for k, v in settings if k not in LEFT_OUT or v != known[k].default}
            if chosen:
                config[name] = chosen
        return config

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
        if not isinstance(self.model.given, str):
            changes["model"] = ModelChoice(None, self.model.described)  # its parameters are frozen already
        return dataclasses.replace(self, **changes) if changes else self

    def key(self) -> str:
        """A short name for the whole config minus seed and run name: runs with the same key are repetitions.

        The number of rounds is left out, too, where a longer run contains the shorter (under a constant rate).
        """
        config = self.to_dict()
        if contains_shorter(config):
            del config["federation"]["rounds"]
        config["run"] = {k: v for k, v in config["run"].items() if k not in {"seed", "name"}}
        if self.data.redraw:
            config["data"].pop("split_seed", None)
        return sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def contains_shorter(config: Mapping[str, Any]) -> bool:
    """Whether a longer run with this config contains the shorter: its rate does not depend on the number of rounds."""
    return config["schedule"]["name"] == CONSTANT_RATE and not acts_at_the_end(config)


def acts_at_the_end(config: Mapping[str, Any]) -> bool:
    """Whether a head is solved after the last round; ``head_only`` solves its own after the first."""
    return "head" in config and config["algorithm"]["name"] != "head_only"


def _count(settings: PartitionSettings, partitioner: Partitioner) -> PartitionSettings:
    """With a number of clients wherever neither the data's groups nor a file give one."""
    if settings.clients is not None or settings.file is not None or isinstance(partitioner, Groups):
        return settings
    return dataclasses.replace(settings, clients=DEFAULT_CLIENTS)


def _model(source: Any, values: Mapping[str, Any]) -> ModelChoice:
    """The model that a config names; a task brings its own."""
    chosen = values.get("name", source.model if isinstance(source, Task) else SECTIONS["model"].default)
    trainable = values.get("trainable", source.trainable if isinstance(source, Task) else None)
    parameters = {name: value for name, value in values.items() if name not in {"name", "trainable"}}
    if isinstance(chosen, str):
        parameters = validate(MODELS[chosen], parameters)
        described = {"name": chosen, **{k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()}}
    else:
        chosen, parameters = partial(chosen, **parameters) if parameters else chosen, {}
        described = {"name": qualified_name(type(chosen))} if _is_module(chosen) else description(None, chosen)
    if trainable is not None:
        described |= {"trainable": plain(trainable)}
    return ModelChoice(chosen, described, parameters, trainable)


def _is_module(given: Any) -> bool:
    return hasattr(given, "state_dict") and not isinstance(given, type)


def _described(table: Table[Any], part: Any) -> dict[str, Any]:
    if isinstance(part, Task | TaskIdentity):
        return plain_fields(part.identity if isinstance(part, Task) else part)
    return dict(part.described) if isinstance(part, ModelChoice) else description(table, part)


def _kept(table: Table[Any], part: Any) -> dict[str, Any]:
    if isinstance(part, ModelChoice):
        trainable = {} if part.trainable is None else {"trainable": part.trainable}  # a function stays one
        return {"name": part.given, **part.parameters, **trainable}
    named = isinstance(part, TaskIdentity) or table.name_of(unwrap(part)) is not None
    return _described(table, part) if named else {"name": part}


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
    task = source.source if isinstance(source, Experiment) else source
    if isinstance(task, Task):
        vars(task).pop("identity", None)  # its arrays may have been changed in place since they were last read
    if isinstance(source, Experiment):
        return source.raw()
    if isinstance(source, Task):
        return {"data": {"name": source}, "partition": source.partition_section, "run": {"name": as_name(source.name)}}
    if isinstance(source, Mapping):
        return {section: dict(values) if isinstance(values, Mapping) else values for section, values in source.items()}
    if not isinstance(source, (str, Path)):
        raise ConfigError(f"experiment: expected a task, a preset's name, a file or a dict, got {shown(source)}")
    return read_file(source)


def _clash(entry: Entry, rule: ServerRule, optimizer: OptimizerFactory) -> str | None:
    """Two settings that cannot be had together, if there are any."""
    if problem := clash(entry, rule):
        return f"server.name: {problem}"
    follows_gradient = getattr(optimizer, "follows_gradient", False)  # a user's need not say
    if follows_gradient or not compose(entry, rule).in_gradient_units:
        return None
    return (
        f"optimizer.name: {name_of(entry)} takes a client's displacement for a sum of gradients, which"
        f" {type(optimizer).__name__}'s is not; use sgd, or an algorithm without such a unit"
    )


def _needs(make: Callable[..., Any], named: bool) -> set[str]:
    """What a model must be told about the data.

    A table's can do without what is None there (``classes`` or ``outputs``), a user's without what has a default.
    """
    wanted = signature(make).parameters.values()
    if named:
        return {each.name for each in wanted if each.name in GIVEN_BY_DATA and each.default is not None}
    return {e.name for e in wanted if e.default is e.empty and e.kind not in {e.VAR_POSITIONAL, e.VAR_KEYWORD}}


def presets() -> dict[str, Path]:
    """The named experiments that come with the package."""
    folder = PACKAGED if PACKAGED.is_dir() else CHECKED_OUT
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def read_file(source: str | Path) -> dict[str, Any]:
    """The nested dict behind a preset's name or a TOML file, not yet checked; it has a run's name."""
    known = presets()
    path = known.get(str(source), Path(source))
    if not path.is_file():
        raise ConfigError(unknown("experiment", str(source), known, kind="preset or file"))
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
        raw.setdefault("run", {})["name"] = as_name(path.stem)
    return raw


def as_name(stem: str) -> str:
    """A file's name as a run's name: what may not stand in one becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:64] or "run"
