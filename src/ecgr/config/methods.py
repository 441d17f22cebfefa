"""Methods in one line: what is done about unlike clients, as a string and as a value.

::

    correction(key=value, …)[loss(…)]/server rule(…)+regulator(…)

Only the first part must be there: no rule is ``average``, no regulator ``none``, and without a loss the experiment's
own stays. Values are numbers, ``true``, ``false`` or words. A parameter that is not named is what the experiment
sets it to, and a default where it sets none.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, Entry, FedAvg, ServerRule
from ecgr.algorithms.rules import Average
from ecgr.config.combinations import clash
from ecgr.config.objects import description, is_algorithm
from ecgr.config.schema import parameters_of, problems_with
from ecgr.core.geometry import Regulator
from ecgr.core.regulators import REGULATORS, Plain
from ecgr.errors import ConfigError
from ecgr.tables import Table, unknown
from ecgr.tasks.losses import LOSSES, Loss

NOTATION = "correction(key=value)[loss]/server+regulator, as in scaffold(damping=0.5)/lookahead+ecgr"
PARTS: Mapping[str, Table[Any]] = {
    "algorithm": ALGORITHMS,
    "loss": LOSSES,
    "server": SERVER_RULES,
    "regulator": REGULATORS,
}
APART = {"name", "source_sha256"}
"""Keys of a section that are no parameters."""
_CALL = r"\s*([A-Za-z_][\w.-]*)\s*(?:\(([^()]*)\))?\s*"
_METHOD = re.compile(rf"{_CALL}(?:\[{_CALL}\])?\s*(?:/{_CALL})?(?:\+{_CALL})?")
_ARGUMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s,\"']+)\s*")
_WORD = re.compile(r"[A-Za-z_][\w.-]*")


def parse_method(text: str) -> dict[str, Any]:
    """A method's settings as dotted keys, for `Experiment.replace`.

    >>> parse_method("fedavg")
    {'algorithm.name': 'fedavg', 'server.name': 'average', 'regulator.name': 'none'}
    >>> parse_method("fedacg(momentum=0.7)+ecgr(beta=0)")["regulator.beta"]
    0
    """
    found = _METHOD.fullmatch(text)
    if found is None:
        raise ConfigError(f"method {text!r}: cannot be read; write {NOTATION}")
    groups = found.groups()
    named = {section: (groups[2 * i], groups[2 * i + 1]) for i, section in enumerate(PARTS) if groups[2 * i]}
    given = {section: (name, _arguments(text, name, inside)) for section, (name, inside) in named.items()}
    problems = [line for section, (name, values) in given.items() for line in _problems(text, section, name, values)]
    if not problems:
        entry, rule = (given.get(part, (default, {})) for part, default in (("algorithm", ""), ("server", "average")))
        problem = clash(ALGORITHMS[entry[0]](**entry[1]), SERVER_RULES[rule[0]](**rule[1]))
        problems = [] if problem is None else [f"method {text!r}: {problem}"]
    if problems:
        raise ConfigError(*problems)
    chosen = {"server": ("average", {}), "regulator": ("none", {}), **given}
    return {
        f"{section}.{key}": value
        for section in PARTS
        if section in chosen
        for key, value in {"name": chosen[section][0], **chosen[section][1]}.items()
    }


def split_methods(text: str) -> list[str]:
    """The methods of a list with commas; those inside brackets do not count.

    >>> split_methods("fedavg, scaffold(damping=0.5,units=gradient)/lookahead,fedavg+ecgr")
    ['fedavg', 'scaffold(damping=0.5,units=gradient)/lookahead', 'fedavg+ecgr']
    """
    parts = re.split(r",(?![^(\[]*[)\]])", text)
    return [part.strip() for part in parts if part.strip()]


def method_name(config: Mapping[str, Any]) -> str:
    """The shortest string for the method of a whole config; `parse_method` reads it back.

    >>> method_name({"algorithm": {"name": "fedavg", "server_lr": 1.0}, "regulator": {"name": "ecgr", "beta": 0.5}})
    'fedavg+ecgr(beta=0.5)'
    """
    default = {"algorithm": "fedavg", "server": "average", "regulator": "none"}
    calls = {
        section: _call(PARTS[section], {"name": default.get(section), **config.get(section, {})}) for section in PARTS
    }
    loss = config.get("loss", {}).get("name")
    shown = loss in LOSSES and hasattr(LOSSES[loss], "evaluation")  # else it is the task's own, and not a method
    return (
        calls["algorithm"]
        + (f"[{calls['loss']}]" if shown else "")
        + (f"/{calls['server']}" if calls["server"] != "average" else "")
        + (f"+{calls['regulator']}" if calls["regulator"] != "none" else "")
    )


@dataclass(frozen=True, slots=True)
class Method:
    """A method by its parts; objects of one's own classes may stand for any of them.

    >>> Method(server=Average(lr=1.5)).name
    'fedavg/average(lr=1.5)'
    """

    algorithm: Entry = field(default_factory=FedAvg)
    server: ServerRule = field(default_factory=Average)
    regulator: Regulator = field(default_factory=Plain)
    loss: Loss | None = None

    def __post_init__(self) -> None:
        problem = clash(self.algorithm, self.server)
        if problem is not None:
            raise ConfigError(f"method: {problem}")

    @classmethod
    def of(cls, given: Any) -> "Method":
        """A method from a string, from itself, or from one of its parts.

        >>> Method.of("fedavg/ema+ecgr").name
        'fedavg/ema+ecgr'
        """
        if isinstance(given, Method):
            return given
        if isinstance(given, str):
            settings = parse_method(given)
            parts = {
                section: table[settings[f"{section}.name"]](
                    **{
                        key.partition(".")[2]: value
                        for key, value in settings.items()
                        if key.startswith(f"{section}.") and key != f"{section}.name"
                    }
                )
                for section, table in PARTS.items()
                if f"{section}.name" in settings
            }
            return cls(**parts)
        if isinstance(given, type):
            return cls.of(given())
        if hasattr(given, "step") and hasattr(given, "served"):
            return cls(server=given)
        if is_algorithm(given):
            return cls(algorithm=given)
        if callable(given):
            return cls(regulator=given)
        raise ConfigError(
            f"method: {given!r} is no method; give a string ({NOTATION}), an algorithm, a server rule, a regulator"
            " or ecgr.Method(…)"
        )

    @property
    def name(self) -> str:
        """As it is written in one line; a class of one's own goes by its name."""
        return method_name({section: description(PARTS[section], part) for section, part in self._parts().items()})

    @property
    def settings(self) -> dict[str, Any]:
        """As dotted keys, for `Experiment.replace`; the parts themselves stand in the place of their names."""
        return {f"{section}.name": part for section, part in self._parts().items()}

    def _parts(self) -> dict[str, Any]:
        parts = {"algorithm": self.algorithm, "loss": self.loss, "server": self.server, "regulator": self.regulator}
        return {section: part for section, part in parts.items() if part is not None}


def method_settings(given: Any) -> dict[str, Any]:
    """What a method, in whatever form, changes in an experiment: dotted keys, for `Experiment.replace`."""
    return parse_method(given) if isinstance(given, str) else Method.of(given).settings


def _arguments(text: str, name: str, inside: str | None) -> dict[str, Any]:
    """``a=1, b=word`` as values."""
    values: dict[str, Any] = {}
    for piece in [] if inside is None or not inside.strip() else inside.split(","):
        found = _ARGUMENT.fullmatch(piece)
        if found is None:
            raise ConfigError(f"method {text!r}: {name}({inside}) cannot be read at {piece.strip()!r}; write key=value")
        if found[1] in values:
            raise ConfigError(f"method {text!r}: {name}.{found[1]} is given twice")
        values[found[1]] = _value(found[2])
    return values


def _value(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return float(text)  # .5 and 1. are numbers to a person
    except ValueError:
        return text


def _problems(text: str, section: str, name: str, values: Mapping[str, Any]) -> Sequence[str]:
    where, table = f"method {text!r}", PARTS[section]
    if name not in table:
        return [unknown(where, name, table, kind=table.kind)]
    entry = table[name]
    allowed = parameters_of(entry)
    return [
        *(unknown(f"{where}: {name}", key, allowed) for key in values if key not in allowed),
        *problems_with(f"{where}: {name}", entry, values),
    ]


def _call(table: Table[Any], values: Mapping[str, Any]) -> str:
    """A component in one line, without the parameters that have their default."""
    name = str(values["name"])
    declared = parameters_of(table[name]) if name in table else {}
    shown = ", ".join(
        f"{key}={_shown(value)}"
        for key, value in values.items()
        if key not in APART and value is not None and not (key in declared and declared[key].default == value)
    )
    name = name if name in table else name.rpartition(".")[2]
    return f"{name}({shown})" if shown else name


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) and _WORD.fullmatch(value) else json.dumps(value)
