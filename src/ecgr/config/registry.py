"""What a config may say: its sections, their tables and keys, and one clear line for each thing that is wrong.

A part's parameters are read from its declaration (a validated dataclass or a function's signature). A value out of
range gives a line with its key, the value and what is allowed; an unknown key is answered with the nearest known one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.algorithms.parts import PARTS
from ecgr.component import Count, PositiveFraction, component, rule
from ecgr.config.optimizers import OPTIMIZERS, SCHEDULES
from ecgr.config.user_code import is_algorithm
from ecgr.core.regulators import REGULATORS
from ecgr.core.stores import STORES
from ecgr.errors import ConfigError, refused
from ecgr.tables import Table, shown, unknown
from ecgr.tasks.data import DATASETS
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.models import MODELS
from ecgr.tasks.partition import PARTITIONERS

GIVEN_BY_DATA = frozenset({"channels", "classes", "features", "outputs", "vocabulary", "length"})
"""A model's arguments that come from the data set, not from the config."""

ANYTHING = ConfigDict(strict=True, arbitrary_types_allowed=True)
_TYPES = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}
_BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}
_PATTERN = (
    "only letters, digits, '.', '_' and '-', starting with a letter or digit, at most 64 of them, no device's name"
)


def parameters_of(component: Callable[..., Any]) -> Mapping[str, FieldInfo]:
    """The parameters that a table entry takes from a config.

    >>> from ecgr.tasks.models import cnn
    >>> list(parameters_of(cnn))
    ['width', 'norm']
    """
    return _model_of(component).model_fields


@cache
def _model_of(component: Callable[..., Any]) -> type[BaseModel]:
    """The parameters as a pydantic model; made once for each component, for it takes as long as a small config."""
    try:
        return cast("type[BaseModel]", create_model("Parameters", __config__=ANYTHING, **_declared(component)))
    except Exception:  # a user's annotation that Python cannot evaluate, or pydantic cannot check, as a protocol
        unchecked = _declared(component, annotated=False)
        return cast("type[BaseModel]", create_model("Parameters", __config__=ANYTHING, **unchecked))


def _declared(component: Callable[..., Any], *, annotated: bool = True) -> dict[str, Any]:
    """Type and default of each parameter; any type will do where it is not ``annotated``."""
    fields = getattr(component, "__pydantic_fields__", None)
    if annotated and fields is not None:
        return {name: (field.annotation, field) for name, field in fields.items() if field.init is not False}
    try:
        parameters = signature(component, eval_str=annotated).parameters
    except (ValueError, TypeError):  # of a class that is built in, as int
        parameters = MappingProxyType({})
    return {
        name: (
            each.annotation if annotated and each.annotation is not each.empty else Any,
            ... if each.default is each.empty else each.default,
        )
        for name, each in parameters.items()
        if name not in GIVEN_BY_DATA
        and not name.startswith("_")  # pydantic takes none of these
        and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    }


def validate(component: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """All of a component's parameters, given or default, in their declared types: 1 becomes 1.0 where it is a float."""
    return _model_of(component)(**values).model_dump()


def problems_with(path: str, component: Callable[..., Any], values: Mapping[str, Any]) -> list[str]:
    """One line for every value that ``component``'s parameters do not allow; unknown keys are not looked at."""
    fields = parameters_of(component)
    known = {name: value for name, value in values.items() if name in fields}
    try:
        validate(component, known)
    except ValidationError as error:
        expected = {name: f"expected {describe(fields[name])}" for name in (str(d["loc"][0]) for d in error.errors())}
        return [
            f"{path}.{name}: missing; {words}"
            if known.get(name) is None
            else f"{path}.{name}: {words}, got {shown(known[name])}"
            for name, words in expected.items()
        ]
    return []


def describe(field: FieldInfo) -> str:
    """What a field allows, in words.

    >>> from ecgr.core.regulators import ECGR
    >>> describe(parameters_of(ECGR)["beta"])
    'a number, at least 0, at most 1'
    >>> from ecgr.tasks.models import mlp
    >>> describe(parameters_of(mlp)["hidden"])
    'a list of whole numbers, at least 1'
    """
    annotated: Any = Annotated[field.annotation, None, *field.metadata]
    try:
        schema = TypeAdapter(annotated).json_schema()
    except PydanticUserError:  # a user's class
        return str(field.annotation)
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    words = []
    for option in options:
        one = option.get("items", option)
        word = _TYPES.get(one.get("type"), str(field.annotation))
        if "enum" in one or "const" in one:
            choices = one.get("enum", [one.get("const")])
            word = "one of: " + ", ".join(str(choice).lower() for choice in choices)
        words.append(word if one is option else f"a list of {word.removeprefix('a ')}s")
        words += [f"{phrase} {one[bound]}" for bound, phrase in _BOUNDS.items() if bound in one]
        words += [_PATTERN] if "pattern" in one else []
    return ", ".join(words)


if TYPE_CHECKING:
    StoreName = str
else:
    StoreName = Literal[tuple(STORES)]

Precision = Literal["float32", "bf16"]
Rounds = Annotated[int, Field(ge=1, le=1_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
"""Names that some systems take for devices, with whatever extension."""


RunName = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"),
    rule("must not be a device's name", lambda name: name.partition(".")[0].lower() not in RESERVED),
]
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


@component
class DataSettings:
    """``[data]`` besides what the data set itself takes.

    ``score``: what is scored, the test samples together, or each client's own: then a metric is the mean over clients.
    ``server_samples`` of the training samples, drawn with the seed, are the server's and no client's. With ``redraw``
    the split into training and test samples is drawn anew with the run's seed.
    """

    fraction: PositiveFraction = 1.0
    test_fraction: PositiveFraction | None = None
    metrics: Names | None = None
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.0
    server_samples: Count | None = None
    score: Literal["test", "own"] = "test"
    redraw: bool | None = None


@component
class ModelSettings:
    """``[model]`` besides what the model itself takes: what of it is trained."""

    trainable: str | Callable[..., Any] | None = None


@component
class PartitionSettings:
    """``[partition]`` besides what the partitioner itself takes.

    Without ``clients``, there are as many as the data have groups (if the partition is by groups), as many as ``file``
    has, or else ten. Without ``min_batches``, every client has a batch, or an equal share where there are too few
    samples; groups stay as they are. ``pooled`` gives everybody's samples to one client, ``alone`` keeps one client and
    its samples, drawn with the seed, ``server`` is one client with the server's: what a comparison measures by.
    ``test_share`` of every client's own samples, drawn with the seed, are held out and take the place of the test
    samples: ``data.score`` is then ``own``.
    """

    clients: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    min_batches: Annotated[int, Field(ge=0)] | None = None
    empty: Literal["error", "skip"] = "error"
    file: str | None = None
    pooled: bool = False
    alone: Annotated[int, Field(ge=0)] | None = None
    server: bool = False
    test_share: Annotated[float, Field(ge=0, lt=1)] = 0.0


LEFT_OUT = {"metrics", "redraw", "server_samples", "score", "server", "test_share"}
"""Keys that a config names only where they do not have their default."""


@component
class FederationSettings:
    """``[federation]``: rounds, local work, participation."""

    rounds: Rounds = 100
    local_epochs: Count = 1
    batch_size: Count = 32
    participation: PositiveFraction = 1.0
    last_batch: Literal["keep", "merge", "drop"] = "keep"


@component
class RunSettings:
    """``[run]``: seed, name, and how the simulator treats what the paper leaves open."""

    seed: Seed = 0
    name: RunName | None = None
    store: StoreName = "dense"
    checkpoint_every: Count = 1
    precision: Precision = "float32"
    served: Literal["last", "average"] = "last"


@dataclass(frozen=True, slots=True)
class Section:
    """How one section of a config is read: a table to choose from by name, keys of its own, or both.

    Attributes:
        default: the name that is chosen where none is given; None where the section may be left out.
        needs: what an object that stands in the place of a name must have.
        own: what is chosen where the section is there and names nothing.
    """

    table: Table[Any] | None = None
    default: str | None = None
    settings: Callable[..., Any] | None = None
    needs: tuple[str, ...] = ("__call__",)
    own: str | None = None

    def chosen(self, values: Mapping[str, Any] | None) -> Any:
        """What the section of a config chooses; ``values`` is None where it is left out."""
        return self.default if values is None else values.get("name", self.own or self.default)

    def entry(self, chosen: Any) -> Callable[..., Any] | None:
        """What makes the chosen part from a config's keys; None where it is an object already, or nothing."""
        if isinstance(chosen, str):
            return self.table[chosen] if self.table is not None and chosen in self.table else None
        return chosen if isinstance(chosen, type) else None

    def make(self, name: str, values: Mapping[str, Any] | None) -> tuple[Any, Any]:
        """The part that a config's section chooses, and the section's own settings; None for what there is not."""
        part, given = self.chosen(values), values or {}
        if (entry := self.entry(part)) is not None:
            with refused(f"{name}.name: {getattr(entry, '__name__', part)} cannot be made"):
                part = entry(**{key: value for key, value in given.items() if key in parameters_of(entry)})
        if self.settings is None:
            return part, None
        return part, self.settings(**{k: v for k, v in given.items() if k in parameters_of(self.settings)})

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
    "model": Section(MODELS, "lenet", ModelSettings),
    "loss": Section(LOSSES),
    "algorithm": Section(ALGORITHMS, "fedavg", needs=()),
    "server": Section(SERVER_RULES, "average", needs=("step",)),
    "regulator": Section(REGULATORS, "none", own="ecgr"),
    "optimizer": Section(OPTIMIZERS, "sgd", needs=("build", "lr", "effective_momentum")),
    "schedule": Section(SCHEDULES, "constant", needs=("factor_at",)),
    "federation": Section(settings=FederationSettings),
    "run": Section(settings=RunSettings),
    **{
        name: Section(table, "none", needs=("clash",), own=name if name in table else None)
        for name, table in PARTS.items()
    },
}


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
            raise ConfigError(f"{key}: expected section.key, for example regulator.beta")
        values = result.setdefault(section, {})
        if not isinstance(values, dict):
            continue  # reported as a section that is not a table
        table = SECTIONS[section].table if section in SECTIONS else None
        if name == "name" and table is not None and (not isinstance(value, str) or value in table):
            result[section] = values = _without_old_parameters(SECTIONS[section], values, value)
        values[name] = value
    return result


def _without_old_parameters(section: Section, values: Mapping[str, Any], chosen: Any) -> dict[str, Any]:
    before = section.chosen(values)
    entry = section.entry(before)
    if before is chosen or before == chosen or entry is None:
        return dict(values)
    old, taken = parameters_of(entry), section.allowed(chosen)
    return {k: v for k, v in values.items() if k not in old or (k in taken and v != old[k].default)}


SWEPT = ("grid", "part", "base")
"""What only a sweep's file has."""


def problems(raw: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a nested dict, one line each."""
    if swept := [name for name in SWEPT if name in raw]:
        return [f"{swept[0]}: this is a sweep, not one experiment; give it to `ecgr sweep`"]
    found = [unknown(name, name, SECTIONS, kind="section") for name in raw if name not in SECTIONS]
    for name, section in SECTIONS.items():
        values = raw.get(name, {})
        if not isinstance(values, Mapping):
            found.append(f"{name}: expected a section with keys, as in [{name}], got {shown(values)}")
            continue
        chosen = None if section.table is None else section.chosen(values if name in raw else None)
        if section.table is not None and (chosen is not None or values):
            unfit = _unfit(name, section, section.table, chosen)
            if unfit is not None:
                found.append(unfit)
                continue
        found += [_unknown_key(name, section, chosen, key) for key in values if key not in section.allowed(chosen)]
        for part in (section.entry(chosen), section.settings):
            if part is not None:
                found += problems_with(name, part, values)
    return found


def _unfit(name: str, section: Section, table: Table[Any], chosen: Any) -> str | None:
    """Why what was chosen, a name, an object or a class, cannot be taken."""
    if chosen is None:
        return f"{name}.name: missing; expected one of: {', '.join(sorted(table))}"
    if isinstance(chosen, str):
        return None if chosen in table else unknown(f"{name}.name", chosen, table, kind=table.kind)
    if isinstance(chosen, bool | int | float | list | dict | tuple):
        return f"{name}.name: expected a name that `ecgr list` shows, or an object, got {shown(chosen)}"
    lacking = [need for need in section.needs if not _has(chosen, need)]
    if table is ALGORITHMS and not is_algorithm(chosen):
        lacking = ["method of an algorithm"]
    if table is MODELS and isinstance(chosen, type) and not hasattr(chosen, "state_dict"):
        lacking = ["state_dict"]
    called = chosen.__name__ if isinstance(chosen, type) else type(chosen).__name__
    article = "an" if table.kind[0] in "aeiou" else "a"
    return f"{name}.name: expected {article} {table.kind}, got {called}, which has no {lacking[0]}" if lacking else None


def _has(chosen: Any, need: str) -> bool:
    """Whether an object has an attribute; of a class, whether its objects have it (every class can be called)."""
    if not isinstance(chosen, type):
        return hasattr(chosen, need)
    return any(need in vars(each) for each in chosen.__mro__) or need in getattr(chosen, "__dataclass_fields__", {})


REMOVED: Mapping[str, str] = {
    "run.buffers": "BatchNorm's buffers are averaged by examples",
    "run.step_control": "tune the baseline's server step instead, as in algorithm.server_lr",
    "run.diagnostics": "rounds.jsonl always has coherence, position and gamma of each client",
}
"""Keys of earlier versions, with what to know or do instead."""


def _unknown_key(name: str, section: Section, chosen: Any, key: str) -> str:
    if f"{name}.{key}" in REMOVED:
        return f"{name}.{key}: was removed; {REMOVED[f'{name}.{key}']}; delete the key"
    if chosen is not None and not isinstance(chosen, str | type):
        return f"{name}.{key}: {type(chosen).__name__} is given as an object; give it its {key} when you make it"
    line = unknown(f"{name}.{key}", key, section.allowed(chosen))
    others = {k: n for n in reversed(list(section.table or {})) if n != chosen for k in section.allowed(n)}
    nearest = get_close_matches(key, others.keys() - section.allowed(chosen), n=1)
    return line + "".join(f" ({near!r} is a key of {others[near]})" for near in nearest)
