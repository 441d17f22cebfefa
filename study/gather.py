"""From the sweeps' run directories to the data that are kept: ``python -m study gather runs``."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.record import RunRecord, pack_kept, to_json
from ecgr.report.collect import find_runs
from ecgr.report.comparison import compare
from ecgr.report.findings import findings, to_text
from ecgr.sweep import summaries_of, write_comparison
from study.data import COMPARED

TREATMENT = {"controls": ("algorithm.server_lr", "run.step_control")}


def gather(runs: Path, folder: Path, commit: str) -> None:
    """Summarise each sweep that is below ``runs`` into ``folder``."""
    for name in COMPARED:
        sweep = runs / f"study-{name}"
        if sweep.is_dir():
            summaries = summaries_of([sweep], TREATMENT.get(name, ()))
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


def head() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _provenance(runs: Path, commit: str) -> Mapping[str, Any]:
    """Where the numbers come from; the first run speaks for all, which had one machine and one set of versions."""
    record: RunRecord = find_runs([runs / "study-main"])[0]
    manifest = json.loads((record.directory / "run.json").read_text())
    return {
        "commit": commit,
        "versions": manifest["versions"],
        "machine": manifest["machine"],
        "data": "MNIST, Fashion-MNIST and CIFAR-10 complete, CIFAR-100 a reduced set of 10,000 + 2,000 images",
    }
