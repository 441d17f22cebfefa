"""Trackers that people already use, fed from the records of runs: one entry a run, and one for an answer.

Everything stays beside the runs unless the person's own variables say otherwise (MLFLOW_TRACKING_URI, WANDB_MODE). An
entry is written anew each time, so that it does not matter who trained a run, and when.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, rmtree
from typing import Any

from ecgr.errors import ConfigError, missing_extra
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.runner import Watch
from ecgr.tables import unknown

SCALARS = ("loss", "train_loss", "worst_client", "lr", "step_norm", "seconds", "bytes_up", "bytes_down")
MANY, LONG = 100, 6000
"""Numbers that MLflow takes at once, and characters of a parameter."""

Row = Mapping[str, Any]
Log = Callable[[Sequence[Row]], None]
"""Takes lines of a record."""


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """What a tracker shows as one run."""

    name: str
    group: str
    place: Path
    facts: Mapping[str, Any]
    files: tuple[Path, ...] = ()

    @property
    def key(self) -> str:
        """What finds it again."""
        return sha256(f"{self.place.resolve()} {self.name}".encode()).hexdigest()[:12]


def entry_of(record: RunRecord, place: Path, method: str | None = None) -> TrackerEntry:
    """A run as an entry of the tracker beside it, or of its comparison's in ``place``."""
    method = method or str(record.manifest["method"])
    config = {f"{section}.{key}": value for section, own in record.config.items() for key, value in own.items()}
    facts = {"method": method, "seed": record.seed, "run": record.directory.name, **config}
    return TrackerEntry(f"{method} seed {record.seed}", place.resolve().name, place, facts)


@contextmanager
def tensorboard(entry: TrackerEntry) -> Iterator[Log]:
    """Event files in ``tensorboard/``; facts and files of text as text."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = entry.place / "tensorboard" / re.sub(r"[^\w.+@()=,-]+", "_", entry.name)
    rmtree(folder, ignore_errors=True)
    writer = EventFileWriter(str(folder))

    def add(summary: Any, step: int = 0) -> None:
        writer.add_event(Event(summary=summary, step=step, wall_time=time.time()))

    def log(rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in _numbers(row).items():
                add(scalar_pb(name, value), row["round"])
        writer.flush()

    texts = {file.name: file.read_text() for file in entry.files if file.suffix != ".html"}
    for name, text in {"facts": to_json(entry.facts, indent=2).decode(), **texts}.items():
        add(text_pb(name, "\n".join(f"    {line}" for line in text.splitlines())))  # markdown: as it is
    yield log
    writer.close()


@contextmanager
def mlflow(entry: TrackerEntry) -> Iterator[Log]:
    """A run of the experiment that the comparison is; in ``mlflow/mlflow.db`` without MLFLOW_TRACKING_URI."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    server, folder = os.environ.get("MLFLOW_TRACKING_URI"), entry.place.absolute() / "mlflow"
    if not server:
        folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(server or f"sqlite:///{folder / 'mlflow.db'}")
    known = client.get_experiment_by_name(entry.group)
    artifacts = None if server else (folder / "artifacts").as_uri()
    experiment = known.experiment_id if known else client.create_experiment(entry.group, artifacts)
    for old in client.search_runs([experiment], f"tags.ecgr = '{entry.key}'"):
        client.delete_run(old.info.run_id)
    run = client.create_run(experiment, run_name=entry.name, tags={"ecgr": entry.key}).info.run_id
    for some in _chunks([Param(name, str(value)[:LONG]) for name, value in entry.facts.items()]):
        client.log_batch(run, params=some)

    def log(rows: Sequence[Row]) -> None:
        now = int(1000 * time.time())
        numbers = [Metric(name, value, now, row["round"]) for row in rows for name, value in _numbers(row).items()]
        for some in _chunks(numbers):
            client.log_batch(run, metrics=some)

    yield log
    for file in entry.files:
        client.log_artifact(run, str(file))
    client.set_terminated(run)


@contextmanager
def wandb(entry: TrackerEntry) -> Iterator[Log]:
    """A run of the group that the comparison is; in ``wandb/``, offline, without WANDB_MODE."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb as library

    for old in (entry.place / "wandb").glob(f"offline-run-*-{entry.key}"):
        rmtree(old)
    entry.place.mkdir(parents=True, exist_ok=True)
    mode: Any = os.environ.get("WANDB_MODE", "offline")
    quiet = library.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True)
    labels: Any = {"project": os.environ.get("WANDB_PROJECT", "ecgr"), "group": entry.group, "name": entry.name}
    run = library.init(id=entry.key, dir=entry.place, mode=mode, config=dict(entry.facts), settings=quiet, **labels)

    def log(rows: Sequence[Row]) -> None:
        for row in rows:
            run.log(_numbers(row), step=row["round"])

    yield log
    for file in entry.files:
        run.save(copy(file, run.dir), base_path=run.dir, policy="now")
    run.finish()


TRACKERS: Mapping[str, Callable[[TrackerEntry], AbstractContextManager[Log]]] = {
    "mlflow": mlflow,
    "wandb": wandb,
    "tensorboard": tensorboard,
}
"""How an entry is written, by the name of the package that writes it."""


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that there is not, before anything is run."""
    if name is not None and name not in TRACKERS:
        raise ConfigError(unknown("track", name, TRACKERS, kind="tracker"))
    if name is not None and find_spec(name) is None:
        raise missing_extra(f"the tracker {name}", "tensorboard" if name == "tensorboard" else "track")


def track(name: str, entries: Sequence[tuple[TrackerEntry, Sequence[Row]]]) -> None:
    """Write entries with the lines of their records."""
    for entry, rows in entries:
        with TRACKERS[name](entry) as log:
            log(rows)


@contextmanager
def tracked(name: str, directory: Path) -> Iterator[Watch]:
    """What a run is watched by: its entry is opened with its first round, and has each as it ends.

    Nothing may stand in a directory that the run refuses. A run that was finished already is read from its record.
    """
    log: Log | None = None
    with ExitStack() as stack:

        def watch(row: Row) -> None:
            nonlocal log
            if log is None:
                log = stack.enter_context(TRACKERS[name](entry_of(RunRecord(directory), directory)))
            log([row])

        yield watch
    if log is None and RunRecord.is_run(directory):
        record = RunRecord(directory)
        track(name, [(entry_of(record, directory), record.rounds)])


def _numbers(row: Row) -> dict[str, float]:
    """The scalars of a round; what is not finite has none."""
    values = {**row["metrics"], **{name: row[name] for name in SCALARS}}
    return {name: value for name, value in values.items() if value is not None}


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (values[start : start + MANY] for start in range(0, len(values), MANY))
