"""What a site says of itself when it joins, and how much of that is believed.

A site says how many samples it has and what they are like, never a sample. All of it may be a lie. It is read within
bounds, and held against the operator's list of sites and sizes. A site that claims too much, or speaks of another task
or version than the others, is left out by name, and the others start.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from flwr.app import ConfigRecord
from pydantic import Field

from ecgr._version import __version__
from ecgr.component import component, rule
from ecgr.config.experiment import OWN
from ecgr.errors import ConfigError
from ecgr.flower.apps.wire import Refusal, read
from ecgr.simulation.workspace import Problem
from ecgr.tables import shown
from ecgr.tasks.losses import LOSSES

MOST_SAMPLES = 10**8
TIMES_THE_MEDIAN = 1000
"""Where the list has no size, a site may claim so many times the median of the others."""

ALIKE = ("shape", "loss", "metrics", "parameters")
"""What all sites must say alike."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _is_shape(text: str) -> bool:
    try:
        shape = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(shape, dict) and all(type(size) is int and 0 < size < 2**31 for size in shape.values())


Size = Annotated[int, Field(ge=0, le=MOST_SAMPLES)]
Text = Annotated[str, Field(max_length=1000)]


@component
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

    client: Size
    examples: Annotated[Size, Field(ge=1)]
    tests: Size
    shape: Annotated[Text, rule("must be positive sizes by name", _is_shape)]
    loss: Text
    metrics: Annotated[tuple[Text, ...], Field(min_length=1, max_length=64, strict=False)]
    parameters: Text
    version: str = __version__

    @classmethod
    def of(cls, problem: Problem, client: int, shape: Mapping[str, int]) -> "Enrolment":
        """What the site of ``client`` says."""
        return cls(
            client=client,
            examples=problem.partition.sizes()[client],
            tests=len(problem.own_rows.get(client, ())) if problem.experiment.data.score == OWN else len(problem.test),
            shape=json.dumps(dict(shape), sort_keys=True),
            loss=LOSSES.name_of(problem.loss) or "",
            metrics=tuple(metric.name for metric in problem.metrics),
            parameters=problem.spec.digest(),
        )

    def to_record(self) -> ConfigRecord:
        return ConfigRecord({**asdict(self), "metrics": list(self.metrics)})

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Enrolment":
        """What a site said; raises `Refusal` unless every word of it can be used."""
        if record.get("version") != __version__:
            raise Refusal(
                f"version: ecgr {shown(record.get('version'))}, the server has {__version__}; install the same"
            )
        return read(cls, record)


@component
class Listed:
    """A site in the operator's list: its name, and the most samples it may claim; None where nobody knows."""

    name: Annotated[str, rule("must be at most 64 letters, digits and . _ -", NAME.fullmatch)]
    samples: Size | None = None
    tests: Size | None = None


def complete_list(listed: Sequence[Listed], clients: int) -> Sequence[Listed]:
    """The operator's list; without one, a list without sizes."""
    if listed and len(listed) != clients:
        raise ConfigError(f"sites: {len(listed)} in the list, but the experiment has {clients} clients")
    return listed or [Listed(f"site-{client}") for client in range(clients)]


def read_list(path: Path) -> list[Listed]:
    """The operator's list; raises one `ConfigError` with every problem in it."""
    try:
        entries = tomllib.loads(path.read_text()).get("site")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: expected a [[site]] with `name` and `samples` for every site")
    sites, problems, allowed = [], [], [field.name for field in fields(Listed)]
    for number, entry in enumerate(entries):
        where = f"{path}: [[site]] {number}"
        problems += [f"{where}: unknown key {key!r}; allowed: {', '.join(allowed)}" for key in entry.keys() - allowed]
        try:
            sites.append(Listed(**{"name": None, **{key: entry[key] for key in allowed if key in entry}}))
        except ConfigError as error:
            problems += [f"{where}: {line.removeprefix('Listed.')}" for line in error.problems]
    names = [site.name for site in sites]
    problems += [f"{path}: name: {name!r} is given twice" for name in sorted({n for n in names if names.count(n) > 1})]
    if problems:
        raise ConfigError(*problems)
    return sites


def believable(claims: Mapping[int, int], who: int) -> int:
    """The most samples that somebody may claim where no list says so, by what the others claim."""
    others = [claim for other, claim in claims.items() if other != who and claim]
    return int(TIMES_THE_MEDIAN * median(others or [MOST_SAMPLES]))


def left_out(listed: Sequence[Listed], sites: Mapping[int, Enrolment]) -> dict[int, str]:
    """Which sites that joined are left out, and why: those that claim too much, and those that differ from most."""
    refused = {}
    for kind, allowed in (("examples", "samples"), ("tests", "tests")):
        claims = {client: getattr(site, kind) for client, site in sites.items()}
        for client, claim in claims.items():
            known = getattr(listed[client], allowed)
            limit = believable(claims, client) if known is None else known
            if claim > limit:
                where = f"{TIMES_THE_MEDIAN:,} times the median of the others" if known is None else "in the list"
                refused[client] = f"{kind}: it claims {claim:,}, allowed {limit:,} ({where})"
    for name in ALIKE:
        said: dict[Any, list[int]] = {}
        for client in sorted(sites.keys() - refused.keys()):
            said.setdefault(getattr(sites[client], name), []).append(client)
        most = max(said.values(), key=len, default=[])
        if said and 2 * len(most) <= sum(map(len, said.values())):
            places = {value: ", ".join(listed[client].name for client in clients) for value, clients in said.items()}
            who = "; ".join(f"{shown(value)} at {names}" for value, names in places.items())
            raise ConfigError(
                f"enrolment: sites differ in their {name}: {who}; they must load the same kind of samples"
            )
        for value, clients in said.items():
            if clients != most:
                common = getattr(sites[most[0]], name)
                refused |= dict.fromkeys(clients, f"{name}: {shown(value)}, most sites have {shown(common)}")
    return refused
