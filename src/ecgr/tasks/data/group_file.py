"""A file that says for each training sample, in order, what it was taken from: a JSON list, or a CSV column."""

import csv
import io
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import ConfigError

COLUMN = "group"
MOST_BYTES = 256 << 20


def read_group_names(file: str, samples: int) -> NDArray[np.str_]:
    """The group of each of ``samples`` samples; whatever is wrong with the file is a `ConfigError`."""
    path = Path(file).expanduser()
    try:
        with path.open("rb") as stream:
            text = stream.read(MOST_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(file, f"cannot be read ({error})") from None
    if len(text) > MOST_BYTES:
        raise _wrong(file, f"has more than {MOST_BYTES:,} bytes")
    names = _from_json(file, text) if path.suffix.lower() == ".json" else _from_csv(file, text)
    if len(names) != samples:
        raise _wrong(file, f"has {len(names):,} groups, there are {samples:,} training samples")
    return np.array(names)


def _from_json(file: str, text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(file, f"is not JSON ({str(error)[:80]})") from None
    if not isinstance(names, list):
        raise _wrong(file, "must hold a list of group names")
    for index, name in enumerate(names):
        if type(name) not in (str, int) or name == "":
            raise _wrong(file, f"has no name or whole number at index {index}")
    return [str(name) for name in names]


def _from_csv(file: str, text: str) -> list[str]:
    names = []
    try:
        lines = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if COLUMN not in (lines.fieldnames or ()):
            raise _wrong(file, f"has no column {COLUMN!r}")
        for line in lines:
            if not line[COLUMN]:
                raise _wrong(file, f"has no {COLUMN} in line {lines.line_num}")
            names.append(line[COLUMN])
    except csv.Error as error:
        raise _wrong(file, f"is not CSV ({error})") from None
    return names


def _wrong(file: str, what: str) -> ConfigError:
    return ConfigError(f"partition.groups: {file} {what}")
