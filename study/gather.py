"""Keep a finished comparison: what `ecgr compare` wrote in its directory, without the runs, and where it came from."""

import json
from pathlib import Path
from typing import Any

KEPT = ("comparison.json", "tuning.json")
"""What is copied, where it is there."""


def gather(place: Path, data: Path) -> Path:
    """Copy a comparison's files to ``data/NAME`` beside ``source.json``; what was there is replaced."""
    if not (place / KEPT[0]).is_file():
        raise ValueError(f"{place}: no {KEPT[0]}; the comparison is not finished, run its command again")
    found = source(place)
    target = data / place.name.removeprefix("compare-")
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (place / name).is_file():
            (target / name).write_bytes((place / name).read_bytes())
    (target / "source.json").write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


def source(place: Path) -> dict[str, Any]:
    """Commits, versions and machines in the records of its runs."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(place.rglob("run.json"))]
    if not records:
        raise ValueError(
            f"{place}: no run.json in it, so nobody knows which commit made it; gather before you clean up"
        )
    return {
        "commits": sorted({str(record.get("commit")) for record in records}),
        "versions": _distinct([record.get("versions", {}) for record in records]),
        "machines": _distinct([record.get("machine", {}) for record in records]),
        "runs": len(records),
    }


def _distinct(values: list[Any]) -> list[Any]:
    return [json.loads(text) for text in sorted({json.dumps(value, sort_keys=True) for value in values})]
