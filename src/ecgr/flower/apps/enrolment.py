"""What a site says of itself when it joins: who it is, how many samples it has, what they are like. Never a sample.

Where sites hold their own data the server knows no more than this: it makes the model from the shape, and refuses to
start where sites do not speak of the same task.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord

from ecgr._version import __version__
from ecgr.errors import ConfigError
from ecgr.simulation.workspace import Problem
from ecgr.tasks.losses import LOSSES

MOST_SAMPLES = 2**40
ALIKE = ("shape", "loss", "metrics", "parameters", "version")
"""What all sites must say alike."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One site.

    Attributes:
        client: whom it stands for.
        examples: training samples.
        tests: test samples.
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
    version: str

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
            version=__version__,
        )

    def to_record(self) -> ConfigRecord:
        """As Flower sends it."""
        return ConfigRecord(
            {
                "client": self.client,
                "examples": self.examples,
                "tests": self.tests,
                "shape": self.shape,
                "loss": self.loss,
                "metrics": list(self.metrics),
                "parameters": self.parameters,
                "ecgr": self.version,
            }
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Enrolment | None":
        """What a site said; None unless every word of it can be used."""
        client, examples, tests = (record.get(name) for name in ("client", "examples", "tests"))
        texts = [record.get(name) for name in ("shape", "loss", "parameters", "ecgr")]
        metrics = record.get("metrics")
        counts = all(type(number) is int and 0 <= number <= MOST_SAMPLES for number in (client, examples, tests))
        named = isinstance(metrics, list) and metrics and all(isinstance(name, str) for name in metrics)
        if not counts or not named or not all(isinstance(text, str) and len(text) <= 1000 for text in texts):
            return None
        shape, loss, parameters, version = texts
        own = cls(client, examples, tests, shape, loss, tuple(metrics), parameters, version)  # type: ignore[arg-type]
        return own if own.examples and _is_shape(own.shape) else None


def _is_shape(text: str) -> bool:
    try:
        shape = json.loads(text)
    except ValueError:
        return False
    return isinstance(shape, dict) and all(type(size) is int and 0 < size < 2**31 for size in shape.values())


def check_agreement(sites: Mapping[int, Enrolment]) -> None:
    """Refuse sites that do not speak of the same task, with one line for each thing that differs."""
    problems = []
    for name in ALIKE:
        said: dict[Any, list[int]] = {}
        for client, site in sorted(sites.items()):
            said.setdefault(getattr(site, name), []).append(client)
        if len(said) > 1:
            who = "; ".join(f"{value} at {', '.join(map(str, clients))}" for value, clients in said.items())
            problems.append(f"enrolment: sites differ in their {name}: {who}; they must load the same kind of samples")
    if problems:
        raise ConfigError(*problems)
