"""Summaries of runs as a file: all that a comparison needs, small enough to keep where the runs themselves are not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.errors import DataError


def to_json(summaries: Sequence[RunSummary]) -> str:
    """One line a run; what is not known of it is left out.

    >>> print(to_json([RunSummary("fedavg", "ecgr", 0, values=(0.5,))]), end="")
    [
    {"algorithm": "fedavg", "method": "fedavg+ecgr", "metric": {"larger_is_better": true, "name": "accuracy", "unit":
    "share"}, "regulator": "ecgr", "role": "arm", "seed": 0, "server_lr": 1.0, "setting": "", "values": [0.5]}
    ]
    """
    lines = [json.dumps(_known(asdict(summary)), sort_keys=True) for summary in summaries]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    unknown = {name for name in ("worst_client", "step_norms") if not any(v is not None for v in fields[name])}
    unknown |= {name for name, value in fields.items() if value is None or (name in ("curve", "tuned") and not value)}
    return {name: value for name, value in fields.items() if name not in unknown}


def read_summaries(path: Path) -> list[RunSummary]:
    """What `to_json` wrote, now or before there were other metrics; raises `DataError` for anything else."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list):
            raise TypeError("it holds no list of them")
        return [_summary(row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path}: not summaries of runs ({error or type(error).__name__}); `ecgr compare` writes them"
        ) from None


def _summary(row: Mapping[str, Any]) -> RunSummary:
    """A row's summary; rows without ``values`` are of accuracy, under that name."""
    fields = dict(row)
    fields["values"] = fields.pop("accuracy") if "values" not in fields else fields["values"]
    fields["metric"] = Quantity(**fields["metric"]) if "metric" in fields else ACCURACY
    fields |= {name: tuple(fields[name]) for name in ("values", "worst_client", "step_norms") if name in fields}
    return RunSummary(**fields)
