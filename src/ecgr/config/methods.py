"""Methods in one line: how non-IID clients are handled, as a string and as a value.

::

    correction(key=value, …)[loss(…)]/server rule(…)+part(…)+part(…)@head(…)

Only the correction must be there: no rule is ``average``, no regulator ``none``. A part is a regulator or the name of
a section of its own; each may be there once. Values are numbers, ``true``, ``false``, words, or text and lists
as in JSON. A parameter that is not named is what the experiment sets it to, and a default where it sets none.

A method has one name, which reads back to it. The name shows the loss that the method or the config's ``[loss]`` sets,
whichever loss it is. The loss that comes with the data or the task is not shown: it is not the method's choice.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import isroutine
from itertools import pairwise
from typing import Any, NoReturn

from ecgr.algorithms import ALGORITHMS, SERVER_RULES, Entry, FedAvg, ServerRule, Shorthand, is_whole
from ecgr.algorithms import parts as other_parts
from ecgr.algorithms.server_rules import Average
from ecgr.config.registry import parameters_of, problems_with
from ecgr.config.user_code import description, is_algorithm, plain_fields, unwrap
from ecgr.core.geometry import Regulator
from ecgr.core.regulators import REGULATORS, Plain
from ecgr.errors import ConfigError
from ecgr.tables import Table, shown, unknown
from ecgr.tasks.losses import LOSSES, Loss

NOTATION = "correction(key=value)[loss]/server+part@head, as in scaffold(damping=0.5)/lookahead+ecgr"
LONGEST = 1000
"""The most characters that a method may have."""
PARTS: Mapping[str, Table[Any]] = {
    "algorithm": ALGORITHMS,
    "loss": LOSSES,
    "server": SERVER_RULES,
    "regulator": REGULATORS,
    **other_parts.PARTS,
}
HEAD = "head"
OPTIONAL = ("regulator", *other_parts.PARTS)
"""What a method is without unless it names it."""
_NAME = re.compile(r"([A-Za-z_][\w.-]*)\s*")
_KEY = re.compile(r"([A-Za-z_]\w*)\s*=\s*")
_WORD = re.compile(r"([^\s,()\[\]\"']+)\s*")
_QUOTED = re.compile(r"'([^']*)'\s*")
_BLANKS = re.compile(r"(\s*)")

Call = tuple[str, dict[str, Any]]
"""A component's name and the parameters given to it."""


class _Reader:
    """Reads a method from left to right, each character once."""

    def __init__(self, text: str) -> None:
        self.text, self.position = text.strip(), 0

    def method(self) -> list[tuple[str, Call]]:
        """What is called, from left to right, each with its place: correction, loss, server rule, parts, head."""
        calls = [("algorithm", self.call())]
        if self.take("["):
            calls.append(("loss", self.call()))
            self.take("]") or self.fail("]")
        if self.take("/"):
            calls.append(("server", self.call()))
        while self.take("+"):
            calls.append(("part", self.call()))
        if self.take("@"):
            calls.append((HEAD, self.call()))
        if self.position < len(self.text):
            self.fail("the end")
        return calls

    def call(self) -> Call:
        name = self.match(_NAME) or self.fail("a name")
        values: dict[str, Any] = {}
        if self.take("("):
            while not self.take(")"):
                key = self.match(_KEY) or self.fail("key=value or )")
                if key in values:
                    raise ConfigError(f"{_where(self.text)}: {name}.{key} is given twice")
                values[key] = self.value()
                self.take(",") or self.text.startswith(")", self.position) or self.fail(", or )")
        return name, values

    def value(self) -> Any:
        if not self.text.startswith(("'", '"', "["), self.position):
            return _value(self.match(_WORD) or self.fail("a value"))
        if (quoted := self.match(_QUOTED)) is not None:
            return quoted
        try:
            value, self.position = json.JSONDecoder().raw_decode(self.text, self.position)
        except (ValueError, RecursionError):
            self.fail("text or a list as in JSON")
        self.match(_BLANKS)
        return value

    def take(self, mark: str) -> bool:
        """Whether ``mark`` comes next; it is then read, with the blanks that follow."""
        found = self.text.startswith(mark, self.position)
        if found:
            self.position += 1
            self.match(_BLANKS)
        return found

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """The first group of ``pattern``, if that comes next; all that it matches is then read."""
        found = pattern.match(self.text, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found[1]

    def fail(self, expected: str) -> NoReturn:
        rest = self.text[self.position : self.position + 20]
        at = f"{rest!r}" if rest else "its end"
        raise ConfigError(f"{_where(self.text)}: expected {expected} at {at}; write {NOTATION}")


def parse_method(text: str) -> dict[str, Any]:
    """A method's settings as dotted keys, for `Experiment.replace`.

    >>> parse_method("fedavg")["regulator.name"]
    'none'
    >>> parse_method("fedacg(momentum=0.7)+ecgr(beta=0)")["regulator.beta"]
    0
    """
    return {
        f"{section}.{key}": value
        for section, (name, values) in _sections(text).items()
        for key, value in {"name": name, **values}.items()
    }


def _sections(text: str) -> dict[str, Call]:
    """What a method chooses from each table; raises `ConfigError` with every problem."""
    if len(text) > LONGEST:
        raise ConfigError(f"{_where(text)}: has {len(text):,} characters; expected at most {LONGEST:,}")
    where, problems = _where(text), list[str]()
    others = {name for name in other_parts.PARTS if name != HEAD}
    given: dict[str, Call] = {}
    for place, call in _Reader(text).method():
        section = place if place != "part" else call[0] if call[0] in others else "regulator"
        kind = place if place in ("part", HEAD) else PARTS[section].kind
        problems += _problems(where, PARTS[section], call, kind, others if place == "part" else ())
        if section in given and not problems:
            what = "are regulators" if section == "regulator" else "are the same part"
            problems.append(f"{where}: {given[section][0]} and {call[0]} {what}; give at most one")
        given[section] = call
    if problems:
        raise ConfigError(*problems)
    chosen = {"server": ("average", {}), **{section: ("none", {}) for section in OPTIONAL}, **given}
    (algorithm, own), (rule, step) = chosen["algorithm"], chosen["server"]
    if problem := clash(ALGORITHMS[algorithm](**own), SERVER_RULES[rule](**step)):
        raise ConfigError(f"{where}: {problem}")
    return {section: chosen[section] for section in PARTS if section in chosen}


def split_methods(text: str) -> list[str]:
    """The methods of a list with commas; commas inside brackets do not separate.

    >>> split_methods("fedavg, scaffold(damping=0.5,units=gradient)/lookahead,fedavg+ecgr")
    ['fedavg', 'scaffold(damping=0.5,units=gradient)/lookahead', 'fedavg+ecgr']
    """
    starts, depth, quote = [0], 0, ""
    for position, character in enumerate(text):
        if quote or character in "\"'":
            quote = "" if character == quote else quote or character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and depth <= 0:
            starts.append(position + 1)
    parts = [text[start : end - 1].strip() for start, end in pairwise([*starts, len(text) + 1])]
    return [part for part in parts if part]


def method_name(config: Mapping[str, Any]) -> str:
    """The shortest string for the method of a whole config; `parse_method` reads it back.

    >>> method_name({"algorithm": {"name": "fedavg", "server_lr": 1.0}, "regulator": {"name": "ecgr", "beta": 0.5}})
    'fedavg+ecgr(beta=0.5)'
    """
    default = {"algorithm": "fedavg", "server": "average", **dict.fromkeys(OPTIONAL, "none")}
    calls = {
        section: _call(PARTS[section], {"name": default.get(section), **config.get(section, {})}) for section in PARTS
    }
    return (
        calls["algorithm"]
        + (f"[{calls['loss']}]" if config.get("loss") else "")
        + (f"/{calls['server']}" if calls["server"] != "average" else "")
        + "".join(f"{'@' if part == HEAD else '+'}{calls[part]}" for part in OPTIONAL if calls[part] != "none")
    )


@dataclass(frozen=True, slots=True)
class Method:
    """A method by its parts; objects of user classes may stand for any of them.

    >>> Method(server=Average(lr=1.5)).name
    'fedavg/average(lr=1.5)'
    """

    algorithm: Entry = field(default_factory=FedAvg)
    server: ServerRule = field(default_factory=Average)
    regulator: Regulator = field(default_factory=Plain)
    loss: Loss | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = clash(self.algorithm, self.server)
        if problem is not None:
            raise ConfigError(f"method: {problem}")

    @classmethod
    def of(cls, given: Any) -> "Method":
        """A method from a string, from itself, or from one of its parts.

        >>> Method.of("fedavg/nur+ecgr").name
        'fedavg/nur+ecgr'
        """
        if isinstance(given, Method):
            return given
        if isinstance(given, str):
            made = {section: PARTS[section][name](**values) for section, (name, values) in _sections(given).items()}
            parts = {name: made.pop(name) for name in other_parts.PARTS}
            return cls(**made, parts={name: part for name, part in parts.items() if part != other_parts.Off()})
        if isinstance(given, type):
            return cls.of(given())
        if hasattr(given, "step") and hasattr(given, "served"):
            return cls(server=given)
        if is_algorithm(given):
            return cls(algorithm=given)
        if callable(given):
            return cls(regulator=given)
        raise ConfigError(
            f"method: expected a string ({NOTATION}), an algorithm, a server rule, a regulator or ecgr.Method(…),"
            f" got {shown(given)}"
        )

    @property
    def name(self) -> str:
        """As it is written in one line; a user's class goes by its name."""
        return method_name({section: description(PARTS[section], part) for section, part in self._parts().items()})

    @property
    def settings(self) -> dict[str, Any]:
        """As dotted keys, for `Experiment.replace`; the parts themselves stand in the place of their names."""
        left_out = {f"{section}.name": "none" for section in other_parts.PARTS}
        return left_out | {f"{section}.name": part for section, part in self._parts().items()}

    def is_same(self, other: "Method") -> bool:
        """Whether two methods of one name are one: their parts are equal, or of one class with equal fields."""
        mine, its = self._parts(), other._parts()
        return mine.keys() == its.keys() and all(_same(unwrap(mine[name]), unwrap(its[name])) for name in mine)

    def _parts(self) -> dict[str, Any]:
        parts = {"algorithm": self.algorithm, "loss": self.loss, "server": self.server, "regulator": self.regulator}
        return {section: part for section, part in parts.items() if part is not None} | dict(self.parts)


def _same(one: Any, other: Any) -> bool:
    if isroutine(one) or isroutine(other):
        return one is other
    return one == other or (type(one) is type(other) and plain_fields(one) == plain_fields(other))


def method_settings(given: Any) -> dict[str, Any]:
    """What a method, in whatever form, changes in an experiment: dotted keys, for `Experiment.replace`."""
    return parse_method(given) if isinstance(given, str) else Method.of(given).settings


def _value(text: str) -> Any:
    for read in (json.loads, float):  # .5 and 1. are numbers to a person
        with suppress(ValueError):
            return read(text)
    return text


def _where(text: str) -> str:
    return f"method {shown(text, 200)}"


def _problems(where: str, table: Mapping[str, Any], call: Call, kind: str, others: Iterable[str] = ()) -> list[str]:
    name, values = call
    if name not in table:
        return [unknown(where, name, [*table, *others], kind=kind)]
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
    given = ", ".join(
        f"{key}={_written(value)}"
        for key, value in values.items()
        if key != "name" and not (value == declared[key].default if key in declared else value is None)
    )
    name = name if name in table else name.rpartition(".")[2]
    return f"{name}({given})" if given else name


def _written(value: Any) -> str:
    """A value as `_Reader.value` reads it back."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    bare = isinstance(value, str) and _WORD.fullmatch(value) and _value(value) == value
    return value if bare else json.dumps(value)


def clash(entry: Entry, rule: ServerRule) -> str | None:
    """Why an algorithm and a server rule cannot be combined, if they cannot.

    >>> clash(FedAvg(server_lr=2.0), Average(lr=1.5))
    'algorithm.server_lr and server.lr both set the length of the step; keep server.lr'
    """
    if rule == Average():
        return None
    if isinstance(entry, Shorthand):
        correction, own = entry.parts()
        whole = f"{name_of(correction)}/{SERVER_RULES.name_of(own)}"
        return f"{name_of(entry)} already is {whole}; leave [server] at average, or name {name_of(correction)} instead"
    if is_whole(entry):
        return f"{name_of(entry)} takes the server's step itself; leave [server] at average"
    if isinstance(entry, FedAvg) and entry.server_lr != 1:
        return "algorithm.server_lr and server.lr both set the length of the step; keep server.lr"
    return None


def name_of(entry: object) -> str:
    """An algorithm's name in its table, or that of its class."""
    return ALGORITHMS.name_of(entry) or type(entry).__name__
