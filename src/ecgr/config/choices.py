"""What each section of a config may say, what is wrong with one, and how dotted keys change it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.config.objects import is_algorithm
from ecgr.config.optimizers import OPTIMIZERS
from ecgr.config.schedules import SCHEDULES
from ecgr.config.schema import parameters_of, problems_with
from ecgr.config.sections import DataSettings, FederationSettings, PartitionSettings, RunSettings
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError
from ecgr.tables import Table, unknown
from ecgr.tasks.data import DATASETS
from ecgr.tasks.losses import LOSSES
from ecgr.tasks.models import MODELS
from ecgr.tasks.partition import PARTITIONERS


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


def problems(raw: Mapping[str, Any]) -> list[str]:
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
        if chosen is not None and not isinstance(chosen, str) and (unfit := _unfit(name, section, chosen)):
            found.append(unfit)
            continue
        found += [_unknown_key(name, section, chosen, key) for key in values if key not in section.allowed(chosen)]
        for part in (section.entry(chosen), section.settings):
            if part is not None:
                found += problems_with(name, part, values)
    return found


def _unfit(name: str, section: Section, chosen: Any) -> str | None:
    """Why an object, or a class, cannot stand in the place of a name."""
    kind = name if section.table is None else section.table.kind
    if isinstance(chosen, bool | int | float | list | dict | tuple):
        return f"{name}.name: {chosen!r} does not fit; give a name that `ecgr list` shows, or an object"
    lacking = [need for need in section.needs if not _has(chosen, need)]
    if section.table is ALGORITHMS and not is_algorithm(chosen):
        lacking = ["method of an algorithm"]
    if section.table is MODELS and isinstance(chosen, type) and not hasattr(chosen, "state_dict"):
        lacking = ["state_dict"]
    called = chosen.__name__ if isinstance(chosen, type) else type(chosen).__name__
    return f"{name}.name: {called} has no {lacking[0]}, so it is no {kind}" if lacking else None


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
