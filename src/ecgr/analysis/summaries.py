"""Summaries of runs as a file: all that a comparison needs, small enough to keep where the runs themselves are not."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ecgr.analysis.metrics import RunSummary
from ecgr.errors import DataError


def to_json(summaries: Sequence[RunSummary]) -> str:
    """One line a run.

    >>> print(to_json([RunSummary("fedavg", "ecgr", 0, accuracy=(0.5,))]), end="")
    [
    {"accuracy": [0.5], "algorithm": "fedavg", "regulator": "ecgr", "seed": 0, "setting": "", "worst_client": [null]}
    ]
    """
    lines = [json.dumps(asdict(summary), sort_keys=True) for summary in summaries]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def read_summaries(path: Path) -> list[RunSummary]:
    """What `to_json` wrote; raises `DataError` for anything else."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
        return [
            RunSummary(**{**row, "accuracy": tuple(row["accuracy"]), "worst_client": tuple(row["worst_client"])})
            for row in rows
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(
            f"{path}: not summaries of runs ({error or type(error).__name__}); `ecgr compare` writes them"
        ) from None
