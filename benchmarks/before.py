"""A comparison by the code of an earlier commit and by this one: `python -m benchmarks.before [NAME [PAIRS]]`.

The same runs, paired by seed and not tuned, from the command to the page, in turn; printed is the processor time of
each, workers included, and their ratio. The earlier code is taken out of this repository's history into a temporary
folder, and runs in this environment. `small_models` has those of small models among its rows; a pair takes a minute.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import ROOT, environment, processor_seconds_of_children

CONFIGS = ROOT / "benchmarks" / "configs"
START = "import sys; from ecgr.cli.app import app; sys.argv[0] = 'ecgr'; app()"
SEEDS = ("--seeds", "0,1,2,3,4,5,6,7,8,9")


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared, how the earlier commit is asked for the same runs, and how this one is."""

    commit: str
    config: str
    earlier: tuple[str, ...]
    now: tuple[str, ...]


DEMO = "fedavg,fedavg+ecgr,fedacg,scaffold,drift_correction"
CASES = {
    "lenet": Case(  # the last commit before a lean start, workers that are used again, and a lean SGD
        "223715a", "lenet.toml", ("--algorithms", "fedavg,scaffold", "--regulators", "none,ecgr"),
        ("--methods", "fedavg,fedavg+ecgr,scaffold,scaffold+ecgr", "--no-tune", "--no-references"),
    ),
    "demo": Case(
        "65bc0ef", "demo.toml", ("--methods", DEMO, "--no-length"),
        ("--methods", DEMO, "--no-tune", "--no-references"),
    ),
    "heart disease": Case(
        "65bc0ef", "heart_disease.toml", ("--methods", "fedavg,fedavg+ecgr", "--no-length"),
        ("--methods", "fedavg,fedavg+ecgr", "--no-tune", "--no-references"),
    ),
}  # fmt: skip


def main(name: str = "lenet", pairs: str = "2") -> None:
    for before, now in measured(CASES[name], int(pairs)):
        sys.stdout.write(f"{before:.1f} s by {CASES[name].commit}, {now:.1f} s now: {now / before:.2f}\n")
        sys.stdout.flush()


def measured(case: Case, pairs: int) -> Iterator[tuple[float, float]]:
    """Processor seconds of the earlier code and of this one, in turn."""
    with tempfile.TemporaryDirectory(prefix="ecgr-") as scratch, code_of(case.commit, Path(scratch)) as earlier:
        for pair in range(pairs):
            before = processor_seconds(Path(scratch) / f"before-{pair}", earlier, case.config, *case.earlier)
            yield before, processor_seconds(Path(scratch) / f"now-{pair}", ROOT, case.config, *case.now)


@contextmanager
def code_of(commit: str, folder: Path) -> Iterator[Path]:
    """The files of a commit, without a trace in the repository."""
    place = folder / "code"
    place.mkdir()
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(place)], input=packed, check=True)
    yield place


def processor_seconds(out: Path, tree: Path, config: str, *options: str) -> float:
    """Of the comparison by the code in ``tree``, with all processes that it starts."""
    command = [sys.executable, "-c", START, "compare", str(CONFIGS / config), *SEEDS, "--workers", "2"]
    code = os.pathsep.join([str(tree / "src"), str(ROOT)])
    used = processor_seconds_of_children()
    subprocess.run(
        [sys.executable, "-m", "benchmarks.counted", *command, "--out", str(out), *options],
        cwd=out.parent, env={**environment(), "PYTHONPATH": code}, check=True, capture_output=True,
    )  # fmt: skip
    return processor_seconds_of_children() - used


if __name__ == "__main__":
    main(*sys.argv[1:])
