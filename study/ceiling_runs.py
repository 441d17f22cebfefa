"""`python -m study ceiling OUT [WORKERS]`: every arm with every seed, a file each; what is there is not run again."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ecgr.config.experiment import load
from ecgr.files import write_atomically
from ecgr.runs.origin import commit
from ecgr.runs.record import to_json
from ecgr.simulation.prepare import prepare
from study.ceiling import ARMS, follow

PRESETS = ("study/leaderboard/mnist", "study/leaderboard/fashion_mnist")
SEEDS = 5

Job = tuple[str, str, int]


def run_ceiling(out: Path, workers: int, seeds: int = SEEDS) -> None:
    """Seed by seed, so that what is finished is comparable whenever somebody stops it."""
    jobs = [(preset, arm, seed) for seed in range(seeds) for preset in PRESETS for arm in ARMS]
    left = [job for job in jobs if not place(out, job).exists()]
    out.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for done, line in enumerate(pool.map(partial(run_one, out), left), start=1):
            sys.stderr.write(f"{done}/{len(left)} {line}\n")


def run_one(out: Path, job: Job, settings: Sequence[tuple[str, Any]] = ()) -> str:
    """Run an arm with a seed and write what it came to."""
    preset, arm, seed = job
    experiment = load(preset, {"run.seed": seed, **dict(settings)})
    course = follow(prepare(experiment, experiment.source.load()), arm)
    content = {"preset": preset, "arm": arm, "seed": seed, "commit": commit(), **asdict(course)}
    write_atomically(place(out, job), to_json(content))
    end = course.values[-1]
    return f"{preset} {arm}, seed {seed}: {'diverged' if end is None else f'{end:.4f}'}"


def place(out: Path, job: Job) -> Path:
    """The file of a job.

    >>> place(Path("out"), ("study/leaderboard/mnist", "epoch: own steps >= 0", 3)).name
    'mnist-epoch-own-steps-not-negative-3.json'
    """
    preset, arm, seed = job
    name = arm.replace(" >= 0", " not negative").replace(":", "").replace(" ", "-")
    return out / f"{Path(preset).name}-{name}-{seed}.json"


def read_ceiling(out: Path) -> list[dict[str, Any]]:
    """What the finished jobs came to, in the order of their names."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*.json"))]
