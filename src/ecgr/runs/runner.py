"""One run, from an experiment to a run directory: started, watched, resumed, locked."""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecgr.config.experiment import Experiment, acts_at_the_end, changes_of, contains_shorter, load
from ecgr.config.partition import natural_note
from ecgr.errors import ConfigError, Diverged
from ecgr.files import write_atomically
from ecgr.runs.differences import PARTITION, Identity, changed_facts, differences
from ecgr.runs.identity import Identify, manifest_of, task_facts
from ecgr.runs.record import DIVERGED, RunRecord, RunWriter, acquire, checkpoint_of, locked, refuse_foreign, to_json
from ecgr.tasks.losses import flatness_note
from ecgr.tasks.task import Task

if TYPE_CHECKING:
    from ecgr.simulation.engines.ray import Cluster
    from ecgr.simulation.rounds import Outcome, Snapshot
    from ecgr.simulation.workspace import Problem
    from ecgr.tasks.data.dataset import Provenance

    Rounds = Callable[[Snapshot], Generator[Outcome, None, None]]

AUTO = "auto"

Watch = Callable[[Mapping[str, Any]], None]
"""Called with each round's line of the record."""


def run(
    experiment: Experiment | Task | str | Path,
    out: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    rounds: int | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    workers: int | str = 1,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    resume: bool = False,
    identity: Identity | None = None,
    apart: float = 0.0,
    watch: Watch | None = None,
    warn: Callable[[str], None] | None = None,
) -> RunRecord:
    """Run one experiment into the directory ``out`` and return its record.

    Args:
        experiment: an `Experiment`, a `Task`, a preset's name or a TOML file.
        out: the run directory, ``runs/NAME`` by default; created if missing; must not hold another run.
        settings: dotted config keys to change, as in ``{"schedule.name": "cosine"}``.
        rounds: the same as ``federation.rounds``.
        lr: the same as ``optimizer.lr``.
        batch_size: the same as ``federation.batch_size``.
        workers: processes that train clients, or ``auto``: one a core; the results do not depend on it.
        engine: ``serial`` (everything in this process), ``pool``, ``ray``, or an
            `ecgr.simulation.engines.ray.Cluster`; by default serial for one worker.
        device: where to compute.
        resume: go on with the interrupted run in ``out``, or start it; a finished one is returned as it is.
        identity: of the experiment, if it is known from a plan.
        apart: seconds between checkpoints at least; what a crash may cost.
        watch: called with each round's line.
        warn: called with each thing a person should know, such as a damaged checkpoint that was passed over.
    """
    changes = changes_of(settings, rounds=rounds, lr=lr, batch_size=batch_size)
    if changes or not isinstance(experiment, Experiment):
        experiment = load(experiment, changes)
    directory = Path(out) if out is not None else Path("runs") / (experiment.run.name or "run")
    count = worker_count(workers)
    if (directory / ".lock").exists():  # a run that is under way is said to be in use, before anything slow
        acquire(directory).release()
    refuse_foreign(directory, resume)
    # Everything that can be wrong with the data or the partition is found before anything is written.
    dataset = experiment.source.load()
    from ecgr.runs.calibration import precision_note  # loads torch
    from ecgr.simulation.client import check_store  # loads torch
    from ecgr.simulation.engines import engine_kind, ready_engine  # loads torch
    from ecgr.simulation.prepare import prepare  # loads torch
    from ecgr.simulation.rounds import simulate  # loads torch

    kind, data = engine_kind(engine, count), dataset.provenance
    known = Identify()(experiment, data.files) if identity is None else _same_data(identity, data)
    problem = prepare(experiment, dataset, device)
    natural = natural_note(experiment, dataset)
    del dataset  # where workers share the images, this process keeps no copy of its own
    check_store(problem, count)
    if warn is not None:
        flat = flatness_note(problem.loss, problem.class_counts) if hasattr(problem.loss, "for_client") else None
        about_data = (f"data is {note}" for note in data.notes)
        for note in filter(None, (*about_data, natural, *problem.notes, flat, precision_note(problem))):
            warn(f"note: {note}")
    # with auto and more machines than this one there are as many workers as there is room for
    open_engine = ready_engine(problem, None if kind.remote and workers == AUTO else count, kind)

    try:
        with ExitStack() as stack:
            fresh = not (resume and RunRecord.is_run(directory))  # an engine that cannot be opened leaves no run behind
            opened = stack.enter_context(open_engine()) if fresh else None

            def play_rounds(snapshot: "Snapshot") -> Generator["Outcome", None, None]:  # there may be none left
                yield from simulate(problem, opened or stack.enter_context(open_engine()), snapshot)

            told: dict[str, Any] = {"identity": known, "watch": watch, "warn": warn}
            every = experiment.run.checkpoint_every
            return play(problem, data, directory, play_rounds, resume=resume, every=every, apart=apart, **told)
    except Diverged as error:
        if RunRecord(directory).diverged is None:
            write_atomically(directory / DIVERGED, to_json({"reason": "; ".join(str(error).splitlines())}))
        raise


def play(
    problem: "Problem",
    data: "Provenance",
    directory: Path,
    rounds: "Rounds",
    *,
    resume: bool,
    every: int,
    apart: float = 0.0,
    identity: Identity | None = None,
    watch: Watch | None = None,
    warn: Callable[[str], None] | None = None,
) -> RunRecord:
    """Play what is left of a run into ``directory``, which is locked meanwhile.

    ``rounds`` plays on from a snapshot; a checkpoint is written after each ``every`` rounds, if the last one is
    ``apart`` seconds ago.
    """
    from ecgr.runs.checkpoint import CLIENTS, StatesOnDisk, load_checkpoint, save_checkpoint  # loads torch
    from ecgr.simulation.rounds import final_state, start  # loads torch

    watch, warn = watch or (lambda row: None), warn or (lambda line: None)
    identity = identity or Identify()(problem.experiment, data.files)
    with locked(directory):
        refuse_foreign(directory, resume)
        if resume and RunRecord.is_run(directory) and _finished(directory, problem, identity):
            return RunRecord.open(directory, problem.experiment.federation.rounds)
        writer, checkpoints = RunWriter(directory), checkpoint_of(directory)
        restored = load_checkpoint(checkpoints)
        if restored is None:
            snapshot, position = replace(start(problem), clients=StatesOnDisk(checkpoints / CLIENTS)), writer.position
            if RunRecord(directory).rounds:
                warn(f"note: {directory} has no checkpoint to go on from, and is run anew")
            writer.begin(manifest_of(problem, data, identity))
        else:
            snapshot, position = restored.snapshot, restored.position
            for line in restored.damaged:
                warn(f"note: passed over a damaged checkpoint: {line}")
        writer.rewind(position, snapshot.rounds)
        for row in RunRecord(directory).rounds:
            watch(row)
        total, saved = problem.experiment.federation.rounds, time.monotonic()
        with closing(rounds(snapshot)) as outcomes:
            for outcome in outcomes:
                snapshot = outcome.snapshot
                writer.append(outcome.row, outcome.kept)
                due = snapshot.rounds % every == 0 and time.monotonic() - saved >= apart
                if due or snapshot.rounds == total:
                    writer.flush()
                    save_checkpoint(checkpoints, snapshot, writer.position)
                    saved = time.monotonic()
                watch(outcome.row)
        writer.finish({name: tensor.numpy() for name, tensor in final_state(problem, snapshot).items()})
    return RunRecord.open(directory)


def _same_data(planned: Identity, data: "Provenance") -> Identity:
    """The planned identity, which has the hashes of the data that were read here, or none where it was planned."""
    known = {name: text for name, text in planned["data"].items() if name != PARTITION}
    if facts := changed_facts({"data": known}, {"data": data.files}):
        raise ConfigError(f"{facts[0]} changed since the runs were planned; give the command again")
    return {**planned, "data": {**planned["data"], **data.files}}


def _finished(directory: Path, problem: "Problem", identity: Identity) -> bool:
    """Whether the run is finished; refuses to go on with one whose config, data or version differ, or that diverged.

    More rounds are no other run: it is then not finished any more, and goes on. Under a constant learning rate fewer
    rounds are none either: the run contains them. With a head after the last round it is another run.
    """
    rounds = problem.experiment.federation.rounds
    record = RunRecord.open(directory, rounds)
    manifest, told = record.manifest, {"config": identity["config"], "task": task_facts(problem)}
    before = manifest["config"]["federation"]["rounds"]
    if contains_shorter(identity["config"]) or (rounds > before and not acts_at_the_end(identity["config"])):
        _refuse_other_schedule(directory, problem.experiment, before)
        manifest = {**manifest, "config": record.config, "key": problem.experiment.key()}
    if other := [*differences({key: manifest.get(key) for key in told}, told), *changed_facts(manifest, identity)]:
        raise ConfigError(*(f"resume: {directory} was run with another {line}" for line in other))
    if record.diverged is not None:
        raise Diverged(f"{directory} diverged, and would again: {record.diverged}")
    if not record.finished and rounds != before:
        (directory / "model.safetensors").unlink(missing_ok=True)  # first: what is not finished must not look it
        RunWriter(directory).begin(manifest)
    return record.finished


def _refuse_other_schedule(directory: Path, experiment: Experiment, before: int) -> None:
    """With more rounds, the rounds that were played must have had the learning rates that they have now."""
    rounds, schedule = experiment.federation.rounds, experiment.schedule
    if any(schedule.factor_at(t, before) != schedule.factor_at(t, rounds) for t in range(before)):
        name = type(schedule).__name__.lower()
        raise ConfigError(
            f"resume: {directory} was planned for {before} rounds, and the learning rates of its schedule {name!r}"
            f" depend on that number; a run of {rounds} rounds needs another directory"
        )


def worker_count(workers: int | str) -> int:
    """The number given, or as many as there are cores for this process.

    >>> worker_count(3), worker_count("3"), worker_count("auto") == cores()
    (3, 3, True)
    """
    if workers == AUTO:
        return cores()
    text = str(workers)
    if isinstance(workers, bool) or not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"workers: expected a whole number, at least 1, or auto, got {workers!r}")
    return int(text)


def cores() -> int:
    """The cores that this process may use; not every system says which."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
