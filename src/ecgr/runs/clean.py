"""What can be made again of a folder of runs: found, measured, removed. Records, models and answers stay."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from ecgr.errors import ConfigError
from ecgr.runs.record import RunRecord, checkpoint_of, locked
from ecgr.tasks.data.sets import cache_folder

ANSWER, TUNED, TUNING = "comparison.json", "tuning.json", "tuning"


@dataclass(frozen=True, slots=True)
class Spare:
    """A file or folder that can be made again, of which kind, and the run that must not be in use meanwhile."""

    kind: str
    path: Path
    run: Path | None = None

    @property
    def bytes(self) -> int:
        return size_of(self.path)

    def remove(self) -> None:
        with locked(self.run) if self.run is not None else nullcontext():
            if self.path.is_dir():
                rmtree(self.path)
            else:
                self.path.unlink(missing_ok=True)


def spare(directory: Path) -> list[Spare]:
    """What can be made again of the runs in or below ``directory``; refused where there are none."""
    runs = sorted(path.parent for path in directory.rglob("run.json") if not path.is_symlink())
    if not runs:
        raise ConfigError(f"clean: {directory} holds no run or comparison; nothing was removed")
    tuning = {run for run in runs if _was_tuning(run)}
    found = [Spare("runs that answered comparisons were tuned with", run, run) for run in sorted(tuning)]
    for run in runs:
        checkpoint = checkpoint_of(run)
        if run not in tuning and RunRecord.open(run).ended and checkpoint.is_dir() and not checkpoint.is_symlink():
            found.append(Spare("checkpoints of finished runs", checkpoint, run))
    decoded = sorted(cache_folder().glob(f"pictures-{'[0-9a-f]' * 32}-*.npy"))
    return [*found, *(Spare("decoded pictures", path) for path in decoded)]


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; links are not followed."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def _was_tuning(run: Path) -> bool:
    place = run.parent.parent
    return run.parent.name == TUNING and (place / ANSWER).is_file() and (place / TUNED).is_file()
