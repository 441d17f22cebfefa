"""Keep a finished comparison: the JSON files that `ecgr compare` wrote, without the runs, and the commit of these."""

import json
from pathlib import Path
from typing import Any


def gather(place: Path, data: Path, commit: str | None = None) -> Path:
    """Copy a comparison's JSON files to ``data/NAME``, beside ``source.json``; what was there is replaced.

    Args:
        commit: of runs whose records name none, as those made outside of a checkout.
    """
    if not (place / "comparison.json").is_file():
        raise ValueError(f"{place}: no comparison.json; the comparison is not finished: run its command again")
    found = source(place, commit)
    target = data / place.name.removeprefix("compare-")
    target.mkdir(parents=True, exist_ok=True)
    for path in place.glob("*.json"):
        (target / path.name).write_bytes(path.read_bytes())
    (target / "source.json").write_text(json.dumps(found, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target


def source(place: Path, commit: str | None) -> dict[str, Any]:
    """Commits, versions and machines in the records of its runs."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(place.rglob("run.json"))]
    if not records:
        raise ValueError(f"{place}: no run.json below it, so its commit is unknown: gather before you remove the runs")
    commits = {record.get("commit") or commit for record in records}
    if None in commits:
        raise ValueError(f"{place}: some runs do not name their commit: `python -m study gather {place} COMMIT`")
    return {
        "commits": sorted(commits),
        "versions": _distinct(record.get("versions") for record in records),
        "machines": _distinct(record.get("machine") for record in records),
        "runs": len(records),
    }


def _distinct(values: Any) -> list[Any]:
    return [json.loads(text) for text in sorted({json.dumps(value, sort_keys=True) for value in values})]
