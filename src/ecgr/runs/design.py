"""How the runs of a directory are to be compared: kept beside them, so that comparing them again gives the same."""

import json
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ecgr.errors import ConfigError, DataError
from ecgr.files import write_atomically

FILE = "design.json"
ARMS, LENGTH, TUNING = "runs", "length", "tuning"
"""Folders of a comparison: the arms, the baseline at other step lengths, the tuning runs, which nothing compares."""


@dataclass(frozen=True, slots=True)
class Design:
    """What is compared with what.

    ``by``: regulators within an algorithm, or whole methods; ``tuned`` keys were chosen for each arm; ``runs`` and
    ``length`` are the runs' names in their folders, in order: what else lies there is of another comparison.
    """

    by: Literal["regulator", "method"] = "regulator"
    baseline: str | None = None
    treatment: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    length: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Keep it beside the runs."""
        write_atomically(directory / FILE, json.dumps(asdict(self), indent=2).encode())


def read_design(directory: Path) -> Design | None:
    """The design that is kept in ``directory``; None if there is none."""
    path = directory / FILE
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
        return Design(
            by="method" if content["by"] == "method" else "regulator",
            baseline=content["baseline"],
            treatment=_texts(content["treatment"]),
            tuned=_texts(content["tuned"]),
            runs=_texts(content["runs"]),
            length=_texts(content["length"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the design of a comparison ({error}); `ecgr compare` writes it") from None


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(value) for value in values)


def refuse_treatment(treatment: Sequence[str], keys: Container[str]) -> None:
    """A treatment that no run has, or by which runs are paired."""
    for key in treatment:
        if key not in keys:
            raise ConfigError(f"--treatment: no run has {key}; give config keys, for example algorithm.server_lr")
        if key == "run.seed":
            raise ConfigError("--treatment: run.seed is what runs are paired by; give another key")
