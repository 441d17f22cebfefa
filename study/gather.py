"""From run directories to the data that are kept: ``python -m study gather DIR``.

DIR is the directory of one sweep, comparison or experiment, or one that holds several. What is gathered again replaces
what was there; runs that are only there stay, so that seeds that a later sweep adds join those of the sweep before.
"""

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.analysis.arms import read_runs, summaries_of
from ecgr.analysis.collect import find_runs
from ecgr.analysis.comparison import compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import read_summaries
from ecgr.compare import write_comparison
from ecgr.errors import DataError
from ecgr.files import write_atomically
from ecgr.runs.design import read_design
from ecgr.runs.record import to_json
from ecgr.simulation.kept import pack_kept
from study.ceiling_runs import read_ceiling
from study.data import COMPARED, EXTENSIONS
from study.findings import findings, to_text

TREATMENT = {"controls": ("algorithm.server_lr", "run.step_control")}
SWEEPS = {f"study-{name}": name for name in COMPARED} | {f"study-{name}": to for name, to in EXTENSIONS.items()}
FOUND = {"study-steps": "steps", "study-collapse": "collapse"}
CEILING = "ceiling"


def gather(runs: Path, folder: Path, commit: str) -> None:
    """Summarise what ``runs`` is, or everything in it that the study knows, into ``folder``."""
    known = [(place, kind) for place in (runs, *_folders(runs)) if (kind := _kind(place)) is not None]
    if not known:
        raise DataError(f"{runs}: no sweep, comparison or experiment of the study in it; `python -m study` lists them")
    for place, summarise in known:
        summarise(place, folder)
    if not (folder / "provenance.json").exists():
        made = _provenance([place for place, _ in known])
        content = {"commit": commit, "versions": made["versions"], "machine": made["machine"]}
        write_atomically(folder / "provenance.json", to_json(content, indent=2))


def _folders(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []


def _kind(place: Path) -> Callable[[Path, Path], None] | None:
    """What makes data of a directory."""
    if place.name in SWEEPS:
        return gather_sweep
    if place.name in FOUND:
        return gather_findings
    if place.name == CEILING:
        return gather_ceiling
    return gather_comparison if read_design(place) is not None else None


def gather_sweep(place: Path, folder: Path) -> None:
    """Summaries of its finished runs, beside those that are there already."""
    name = SWEEPS[place.name]
    own, target = folder / name, folder / name / "summaries.json"
    records = [record for record in find_runs([place]) if record.finished]
    if not records:
        raise DataError(f"{place}: none of its runs is finished")
    found = _with_data(summaries_of(read_runs(records, TREATMENT.get(name, ()))), records)
    summaries = merged(read_summaries(target) if target.exists() else (), found)
    write_comparison(compare(summaries), summaries, own)
    _write_provenance(own, [place])


def merged(there: Iterable[RunSummary], new: Iterable[RunSummary]) -> list[RunSummary]:
    """Both; where a run is in both, the new one.

    >>> def run(seed, value):
    ...     return RunSummary("fedavg", "none", seed, (value,))
    >>> [(own.seed, own.values) for own in merged([run(0, 0.1)], [run(0, 0.2), run(1, 0.3)])]
    [(0, (0.2,)), (1, (0.3,))]
    """

    def key(run: RunSummary) -> tuple[str, str, str, int, str]:
        return run.setting, run.algorithm, run.regulator, run.seed, run.role

    return list({key(run): run for run in (*there, *new)}.values())


def gather_findings(place: Path, folder: Path) -> None:
    """What is found in runs with diagnostics."""
    name = FOUND[place.name]
    records = [record for record in find_runs([place]) if record.finished]
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "findings.json").write_text(to_text(findings(records)))
    if name == "steps":
        for record in records:
            config = record.config
            stem = f"{config['data']['name']}-alpha-{config['partition']['alpha']:g}"
            np.savez_compressed(folder / name / f"{stem}.npz", **pack_kept(record.kept()))  # type: ignore[arg-type]


def gather_comparison(place: Path, folder: Path) -> None:
    """What `ecgr compare` wrote, under the name of its directory; its runs are left behind."""
    design = read_design(place)
    if design is None or not (place / "summaries.json").is_file():
        raise DataError(f"{place}: the comparison is not finished; run its command again, it goes on")
    own, summaries = folder / place.name, read_summaries(place / "summaries.json")
    write_comparison(compare(summaries, design.baseline, design.by), summaries, own)
    replace(design, runs=(), length=()).write(own)
    if (place / "tuning.json").is_file():
        write_atomically(own / "tuning.json", (place / "tuning.json").read_bytes())
    _write_provenance(own, [place])


def gather_ceiling(place: Path, folder: Path) -> None:
    """One line for each finished job."""
    lines = [json.dumps(found, sort_keys=True) for found in read_ceiling(place)]
    if not lines:
        raise DataError(f"{place}: nothing finished in it; `python -m study ceiling {place}` goes on")
    (folder / CEILING).mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CEILING / "runs.json", ("[\n" + ",\n".join(lines) + "\n]\n").encode())


def _with_data(summaries: Sequence[RunSummary], records: Sequence[Any]) -> list[RunSummary]:
    """Settings that name the data set also where there is only one, of which a comparison says nothing."""
    names = {str(record.config["data"]["name"]) for record in records}
    if len(names) > 1:
        return list(summaries)
    (name,) = names
    return [replace(run, setting=", ".join(filter(None, [f"data.name={name}", run.setting]))) for run in summaries]


def head() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _write_provenance(own: Path, places: Sequence[Path]) -> None:
    """Beside the data: the commits in the runs' records, with those of runs that were gathered before."""
    path, made = own / "provenance.json", _provenance(places)
    before = json.loads(path.read_text(encoding="utf-8"))["commits"] if path.exists() else []
    write_atomically(path, to_json({**made, "commits": [*dict.fromkeys([*before, *made["commits"]])]}, indent=2))


def _provenance(places: Sequence[Path]) -> Mapping[str, Any]:
    """Where the numbers come from: one machine and one set of versions, or there is no telling."""
    manifests = [json.loads(path.read_text()) for place in places for path in sorted(place.rglob("run.json"))]
    sources = {json.dumps([manifest["versions"], manifest["machine"]], sort_keys=True) for manifest in manifests}
    if len(sources) > 1:
        named = "; ".join(sorted(sources))
        raise DataError(f"{', '.join(map(str, places))}: runs of different versions or machines: {named}")
    known = dict.fromkeys(str(manifest["commit"]) for manifest in manifests if manifest.get("commit"))
    first = manifests[0] if manifests else {"versions": {}, "machine": {}}
    return {"commits": sorted(known), "versions": first["versions"], "machine": first["machine"]}
