"""What runs showed beyond their accuracy, as plain data: small, and enough to draw its figures again.

::

    positions    how late kept steps come
    theory       whether the argument's assumption and conclusion held (needs ``run.diagnostics``)
    buffers      what became of BatchNorm's running means and variances

Each is a list with an entry for a run: its labels and its numbers, to five significant digits.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.analysis.collect import Run, read_runs
from ecgr.errors import DataError
from ecgr.runs.record import RunRecord
from study.buffers import buffers
from study.positions import positions
from study.theory import theory

Findings = Mapping[str, Sequence[Mapping[str, Any]]]

FINDINGS: Mapping[str, Callable[[Sequence[Run]], list[dict[str, Any]]]] = {
    "positions": positions,
    "theory": theory,
    "buffers": buffers,
}


def findings(records: Sequence[RunRecord]) -> dict[str, list[dict[str, Any]]]:
    """What ``records`` hold of each kind; kinds of which they hold nothing are left out."""
    return findings_of(read_runs(records))


def findings_of(runs: Sequence[Run]) -> dict[str, list[dict[str, Any]]]:
    """As `findings`, for runs that were read already."""
    return {name: found for name, find in FINDINGS.items() if (found := find(runs))}


def to_text(found: Findings) -> str:
    """JSON with sorted keys and a line for each run, so that a change of one run changes one line.

    >>> print(to_text({"theory": [{"seed": 1, "run": "a"}, {"run": "b"}]}), end="")
    {
    "theory": [
    {"run":"a","seed":1},
    {"run":"b"}
    ]
    }
    """
    kinds = (f"{_line(name)}: [\n" + ",\n".join(map(_line, found[name])) + "\n]" for name in sorted(found))
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def read_findings(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The findings in a file that `python -m study figures` wrote."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not readable as JSON: {error}") from None
    if not isinstance(found, dict) or not set(found) <= set(FINDINGS):
        raise DataError(f"{path}: must hold a JSON object with some of: {', '.join(FINDINGS)}")
    return found


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
