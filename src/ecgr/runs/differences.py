"""What two runs must share: the facts of run.json that decide a run's numbers, and words for those that differ.

What is not identical is never reused, never gone on with, and never paired; the line that says so names what differs.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.code import CONSTANT, STATE
from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord

Identity = Mapping[str, Any]
"""``config``, ``data`` (hashes by file), ``code`` (hashes by part and name) and ``versions``."""
PARTITION = "partition"
"""What the hash of ``partition.file`` is called among those of the data."""
APART = {"config.run.name", "config.data.root", "config.data.sha256", "config.partition.file"}
TASK = ("data", "model", "loss", "metric")
"""Parts of the code that are the task's, the same for every method."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """A line for each setting in which two runs differ; names apart, and what other facts say better."""
    lines = []
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        where = f"{path}.{key}" if path else key
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += differences(before, after, where)
        elif before != after and where not in APART:
            lines.append(f"{where.removeprefix('config.')}: {before!r}, now {after!r}")
    return lines


def changed_facts(old: Mapping[str, Any], new: Mapping[str, Any], parts: Container[str] | None = None) -> list[str]:
    """What differs between two runs beside their settings, in words; of the code that of some ``parts`` alone.

    >>> old = {"data": {"a.csv": "1"}, "code": {"model": {"m.Net": "2"}}, "versions": {"torch": "2.9"}}
    >>> changed_facts(old, {**old, "data": {"a.csv": "3"}, "code": {"model": {"m.Net": "4"}}})
    ['data (a.csv)', 'model code (m.Net)']
    >>> changed_facts(old, {**old, "versions": {"torch": "2.10"}})
    ['versions (torch 2.9, 2.10)']
    """
    facts = []
    data, versions, code = ((old.get(fact, {}), new.get(fact, {})) for fact in ("data", "versions", "code"))
    if all(data) and (names := _changed(*data)):
        files = [name for name in names if name != "task"]
        facts.append(f"data ({_some(files)})" if files else "data")
    both = [name for name in _changed(*versions) if all(name in own for own in versions)]
    if both:
        facts.append(f"versions ({'; '.join(f'{name} {versions[0][name]}, {versions[1][name]}' for name in both)})")
    if "python" not in both:  # otherwise all byte code is another
        for part in sorted({*code[0], *code[1]}):
            if parts is not None and part.partition(" ")[0] not in parts:
                continue
            facts += _changed_code(part, _changed(*(own.get(part, {}) for own in code)))
    return facts


def _changed_code(part: str, names: Sequence[str]) -> Iterator[str]:
    constants = [name.removeprefix(f"{CONSTANT} ") for name in names if name.startswith(f"{CONSTANT} ")]
    written = [name for name in names if name != STATE and not name.startswith(f"{CONSTANT} ")]
    if written:
        yield f"{part} code ({_some(written)})"
    elif constants:
        yield f"a constant of the {part} code ({_some(constants)})"
    elif names:
        yield "model weights" if part == "model" else f"the {part}'s state"


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join([*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])])


def made_anew(places: Mapping[Path, Identity]) -> list[str]:
    """A line for each reason why runs have to be made though there are some of the same settings beside them."""
    reasons: Counter[tuple[str, Path]] = Counter()
    for directory, identity in places.items():
        if RunRecord.is_run(directory) or not directory.parent.is_dir():
            continue
        name = re.escape(directory.name.rpartition("-")[0])
        beside = [path for path in directory.parent.iterdir() if re.fullmatch(f"{name}-[0-9a-f]+", path.name)]
        records = [RunRecord(path).manifest for path in beside if RunRecord.is_run(path)]
        if alike := [record for record in records if not differences(record["config"], identity["config"], "config")]:
            newest = max(alike, key=lambda record: str(record.get("created")))
            reasons[", ".join(changed_facts(newest, identity)), directory.parent] += 1
    return [
        f"{what} changed: {number} {'run is' if number == 1 else 'runs are'} made anew; the old ones stay in {folder}"
        for (what, folder), number in reasons.items()
        if what
    ]


def refuse_mixed(records: Sequence[RunRecord], methods: Sequence[str]) -> None:
    """Runs of one setting that cannot be paired: their data, their task or versions differ, or one method's code."""
    first = records[0]
    of_method: dict[str, RunRecord] = {}
    for record, method in zip(records, methods, strict=True):
        other = of_method.setdefault(method, record)
        own_loss = "loss" in record.config or "loss" in first.config
        task = [part for part in TASK if not (own_loss and part == "loss")]
        for partner, parts in ((first, task), (other, None)):
            if facts := changed_facts(partner.manifest, record.manifest, parts):
                raise ConfigError(
                    f"compare: {partner.directory} and {record.directory} cannot be paired: they differ in"
                    f" {', '.join(facts)}; give runs of one task, or let `ecgr compare` make them anew"
                )
