"""From the sweeps' run directories to the data that are kept: ``python -m study gather runs``."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.analysis.arms import read_runs, summaries_of
from ecgr.analysis.collect import find_runs
from ecgr.analysis.comparison import compare
from ecgr.analysis.metrics import RunSummary
from ecgr.compare import write_comparison
from ecgr.errors import DataError
from ecgr.runs.record import to_json
from ecgr.simulation.kept import pack_kept
from study.data import COMPARED
from study.findings import findings, to_text

TREATMENT = {"controls": ("algorithm.server_lr", "run.step_control")}


def gather(runs: Path, folder: Path, commit: str) -> None:
    """Summarise each sweep that is below ``runs`` into ``folder``."""
    for name in COMPARED:
        sweep = runs / f"study-{name}"
        if sweep.is_dir():
            summaries = _with_data(summaries_of(read_runs(find_runs([sweep]), TREATMENT.get(name, ()))), sweep)
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_comparison(compare(summaries), summaries, folder / name)
    for name in ("steps", "collapse"):
        records = [record for record in find_runs([runs / f"study-{name}"]) if record.finished]
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "findings.json").write_text(to_text(findings(records)))
        if name == "steps":
            for record in records:
                config = record.config
                stem = f"{config['data']['name']}-alpha-{config['partition']['alpha']:g}"
                np.savez_compressed(folder / name / f"{stem}.npz", **pack_kept(record.kept()))  # type: ignore[arg-type]
    (folder / "provenance.json").write_bytes(to_json(_provenance(runs, commit), indent=2))


def _with_data(summaries: Sequence[RunSummary], sweep: Path) -> list[RunSummary]:
    """Settings that name the data set also where there is only one, of which a comparison says nothing."""
    names = {str(record.config["data"]["name"]) for record in find_runs([sweep])}
    if len(names) > 1:
        return list(summaries)
    (name,) = names
    return [replace(run, setting=", ".join(filter(None, [f"data.name={name}", run.setting]))) for run in summaries]


def head() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _provenance(runs: Path, commit: str) -> Mapping[str, Any]:
    """Where the numbers come from: one machine and one set of versions, or there is no telling."""
    manifests = [json.loads((record.directory / "run.json").read_text()) for record in find_runs([runs])]
    sources = {json.dumps([manifest["versions"], manifest["machine"]], sort_keys=True) for manifest in manifests}
    if len(sources) > 1:
        raise DataError(f"{runs}: runs of different versions or machines: {'; '.join(sorted(sources))}")
    return {"commit": commit, "versions": manifests[0]["versions"], "machine": manifests[0]["machine"]}
