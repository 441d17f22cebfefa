"""What a site says of itself when it joins, and how much of that is believed.

A site says how many samples it has and what they are like, never a sample. All of it may be a lie. It is read within
bounds, and held against the operator's list of sites and sizes. A site that claims too much, or speaks of another task
or version than the others, is left out by name, and the others start.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from flwr.app import ConfigRecord

from ecgr._version import __version__
from ecgr.errors import ConfigError
from ecgr.flower.guard import Refusal
from ecgr.simulation.workspace import Problem
from ecgr.tasks.losses import LOSSES

MOST_SAMPLES = 10**8
MOST_TEXT = 1000
MOST_METRICS = 64
TIMES_THE_MEDIAN = 1000
"""Where the list has no size, a site may claim so many times the median of the others."""

ALIKE = ("shape", "loss", "metrics", "parameters")
"""What all sites must say alike."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One site.

    Attributes:
        client: whom it stands for.
        examples: how many samples it trains on.
        tests: how many it tests on.
        shape: what a model must know of the samples, as JSON.
        loss: the name of the loss that goes with them.
        metrics: the names of the metrics.
        parameters: a hash of the model's parameters, by name and shape.
        version: of ecgr.
    """

    client: int
    examples: int
    tests: int
    shape: str
    loss: str
    metrics: tuple[str, ...]
    parameters: str
    version: str = __version__

    @classmethod
    def of(cls, problem: Problem, client: int, shape: Mapping[str, int]) -> "Enrolment":
        """What the site of ``client`` says."""
        return cls(
            client=client,
            examples=problem.partition.sizes()[client],
            tests=len(problem.test),
            shape=json.dumps(dict(shape), sort_keys=True),
            loss=LOSSES.name_of(problem.loss) or "",
            metrics=tuple(metric.name for metric in problem.metrics),
            parameters=problem.spec.digest(),
        )

    def to_record(self) -> ConfigRecord:
        """As Flower sends it."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return ConfigRecord({**said, "metrics": list(self.metrics)})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Enrolment":
        """What a site said; raises `Refusal` unless every word of it can be used."""
        said: dict[str, Any] = {field.name: record.get(field.name) for field in fields(cls)}
        if said["version"] != __version__:
            raise Refusal(f"version: ecgr {shown(said['version'])}, the server has {__version__}; install the same")
        for name, least in (("client", 0), ("examples", 1), ("tests", 0)):
            if type(said[name]) is not int or not least <= said[name] <= MOST_SAMPLES:
                raise Refusal(f"{name}: {shown(said[name])}, allowed {least} to {MOST_SAMPLES:,}")
        for name in ("shape", "loss", "parameters"):
            if not isinstance(said[name], str) or len(said[name]) > MOST_TEXT:
                raise Refusal(f"{name}: {shown(said[name])}, expected a text of at most {MOST_TEXT} characters")
        metrics = said["metrics"]
        if not isinstance(metrics, list) or not 0 < len(metrics) <= MOST_METRICS:
            raise Refusal(f"metrics: {shown(metrics)}, expected 1 to {MOST_METRICS} names")
        if not all(isinstance(name, str) and len(name) <= MOST_TEXT for name in metrics):
            raise Refusal(f"metrics: expected names of at most {MOST_TEXT} characters")
        if not _is_shape(said["shape"]):
            raise Refusal(f"shape: {shown(said['shape'])}, expected positive sizes by name")
        return cls(**{**said, "metrics": tuple(metrics)})


@dataclass(frozen=True, slots=True)
class Listed:
    """A site in the operator's list: its name, and the most samples it may claim; None where nobody knows."""

    name: str
    samples: int | None = None
    tests: int | None = None


LIST_HEAD = f"""\
# The sites of this federation in the order of their partition-id, the first is 0. Edit this before a run.
# samples, tests: the most samples that the site may claim, to train and to test on. Who claims more is left out.
# A site's weight is its number of samples. Without `samples` here, it is left out only above {TIMES_THE_MEDIAN:,}
# times the median of the others: one site can then dominate the model.
"""


def complete_list(listed: Sequence[Listed], clients: int) -> Sequence[Listed]:
    """The operator's list; without one, a list without sizes."""
    if listed and len(listed) != clients:
        raise ConfigError(f"sites: {len(listed)} in the list, but the experiment has {clients} clients")
    return listed or [Listed(f"site-{client}") for client in range(clients)]


def write_list(path: Path, sites: Sequence[Listed]) -> None:
    """Write the list, for the operator to edit."""
    text = LIST_HEAD
    for site in sites:
        given = {field.name: getattr(site, field.name) for field in fields(site)}
        lines = (f"{name} = {json.dumps(value)}\n" for name, value in given.items() if value is not None)
        text += "\n[[site]]\n" + "".join(lines)
    path.write_text(text)


def read_list(path: Path) -> list[Listed]:
    """The operator's list; raises one `ConfigError` with every problem in it."""
    try:
        entries = tomllib.loads(path.read_text()).get("site")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: expected a [[site]] with `name` and `samples` for every site")
    allowed, seen, problems = [field.name for field in fields(Listed)], set(), []
    for number, entry in enumerate(entries):
        where, name = f"{path}: [[site]] {number}", entry.get("name")
        problems += [f"{where}: unknown key {key!r}; allowed: {', '.join(allowed)}" for key in entry.keys() - allowed]
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in seen:
            problems.append(f"{where}: name: {shown(name)}, expected a name of its own: letters, digits and . _ -")
        seen.add(str(name))
        problems += [
            f"{where}: {key}: {shown(entry[key])}, allowed 0 to {MOST_SAMPLES:,}"
            for key in ("samples", "tests")
            if key in entry and (type(entry[key]) is not int or not 0 <= entry[key] <= MOST_SAMPLES)
        ]
    if problems:
        raise ConfigError(*problems)
    return [Listed(**entry) for entry in entries]


def left_out(listed: Sequence[Listed], sites: Mapping[int, Enrolment]) -> dict[int, str]:
    """Which sites that joined are left out, and why: those that claim too much, and those that differ from most."""
    refused = {}
    for client, site in sites.items():
        for kind, known in (("examples", listed[client].samples), ("tests", listed[client].tests)):
            others = [getattr(other, kind) for c, other in sites.items() if c != client]
            middle = median([size for size in others if size] or [MOST_SAMPLES])
            limit = int(TIMES_THE_MEDIAN * middle) if known is None else known
            if getattr(site, kind) > limit:
                where = f"{TIMES_THE_MEDIAN:,} times the median of the others" if known is None else "in the list"
                refused[client] = f"{kind}: it claims {getattr(site, kind):,}, allowed {limit:,} ({where})"
    return {**_unlike(listed, {c: site for c, site in sites.items() if c not in refused}), **refused}


def _unlike(listed: Sequence[Listed], sites: Mapping[int, Enrolment]) -> dict[int, str]:
    """Sites that speak of another task than most; with no majority nobody knows which is meant, and all are refused."""
    said = {client: {name: getattr(site, name) for name in ALIKE} for client, site in sites.items()}
    counted = Counter(tuple(values.values()) for values in said.values())
    if len(counted) < 2:
        return {}
    most, count = counted.most_common(1)[0]
    if 2 * count <= len(sites):
        raise ConfigError(*(line for name in ALIKE for line in _differences(name, listed, sites)))
    common = dict(zip(ALIKE, most, strict=True))
    return {
        client: f"{name}: {shown(values[name])}, most sites have {shown(common[name])}"
        for client, values in said.items()
        for name in reversed(ALIKE)
        if values[name] != common[name]
    }


def _differences(name: str, listed: Sequence[Listed], sites: Mapping[int, Enrolment]) -> list[str]:
    said: dict[Any, list[str]] = {}
    for client, site in sorted(sites.items()):
        said.setdefault(getattr(site, name), []).append(listed[client].name)
    who = "; ".join(f"{shown(value)} at {', '.join(names)}" for value, names in said.items())
    line = f"enrolment: sites differ in their {name}: {who}; they must load the same kind of samples"
    return [line] if len(said) > 1 else []


def _is_shape(text: str) -> bool:
    try:
        shape = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(shape, dict) and all(type(size) is int and 0 < size < 2**31 for size in shape.values())


def shown(value: object, most: int = 60) -> str:
    """What a stranger said, for a message: escaped, and cut before it is."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = ascii(value[:most] if isinstance(value, str | bytes) else value)
    return text if len(text) <= most + 2 else text[:most] + "..."
