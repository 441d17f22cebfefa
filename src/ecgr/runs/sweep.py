"""Many runs: a grid or a paired comparison, each run in a process of its own, named by its identity.

What is finished is skipped, what is partial goes on, what failed is reported; so the same command, given again, does
exactly what is left.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Protocol

from ecgr.config.experiment import Experiment, read
from ecgr.config.partition import chosen_share, partition_of
from ecgr.config.registry import override
from ecgr.config.user_code import UserModel
from ecgr.errors import ConfigError, DataError, Diverged, EcgrError, with_code
from ecgr.runs.identity import Identify
from ecgr.runs.manifest import Identity, identity_key, made_anew
from ecgr.runs.place import checkpoint_of, refuse_unusable
from ecgr.runs.record import RunRecord
from ecgr.runs.runner import asked_workers, make_run, worker_count
from ecgr.tables import shown
from ecgr.tasks.task import Task, TaskIdentity

if TYPE_CHECKING:
    from ecgr.runs.runner import Watch
    from ecgr.simulation.engines.ray import Cluster

CHECKPOINTS_APART = 5.0
"""Seconds: the most that a crash costs a run of many; writing one after each of its short rounds would cost more."""
FIRST = 10**9
"""More rounds than any run has."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One run of a sweep and its place."""

    experiment: Experiment
    directory: Path
    identity: Identity

    @property
    def name(self) -> str:
        """The run's directory name."""
        return self.directory.name

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return RunRecord.is_run(self.directory) and self.record.finished

    @property
    def diverged(self) -> str | None:
        """Why it ended early, if it did: it would again."""
        return self.record.diverged

    @property
    def record(self) -> RunRecord:
        """What is there of it, and no more rounds than it is to have."""
        return RunRecord(self.directory, self.experiment.federation.rounds)

    @property
    def goes_on(self) -> bool:
        """Whether nothing of it is made twice: it has ended, or has a checkpoint."""
        return self.finished or self.diverged is not None or checkpoint_of(self.directory).is_dir()

    @property
    def rounds_done(self) -> int:
        """Rounds in the record so far, of those that it is to have."""
        path, asked = self.directory / "rounds.jsonl", self.experiment.federation.rounds
        return min(asked, path.read_bytes().count(b"\n")) if path.exists() else 0


class Listener(Protocol):
    """Hears what becomes of the runs."""

    def begun(self, planned: Planned, attempt: int) -> None:
        """A run was handed to a worker, for the first time or again."""
        ...

    def ended(self, planned: Planned) -> None:
        """A run is finished or has failed."""
        ...


Progress = Callable[[Sequence[Planned]], AbstractContextManager[Listener]]
"""Shows what runs: given the plans, a context around them with somebody who listens."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not finish."""

    name: str
    reason: str
    exit_code: int
    final: bool = False

    @property
    def hopeless(self) -> bool:
        """Whether it would fail again: what it was given is wrong, not the machine or its luck."""
        return self.exit_code in (ConfigError.exit_code, DataError.exit_code)


Tasks = Mapping[TaskIdentity, Task]
"""The tasks of some runs: they travel once to each process, not with every run."""


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run as a job for a process pool."""

    planned: Planned
    device: str = "cpu"
    needed: bool = False

    @property
    def cost(self) -> int:
        """Rounds left: long runs start first, after those that the others need."""
        left = self.planned.experiment.federation.rounds - self.planned.rounds_done
        return left + (FIRST if self.needed else 0)

    def run(self, workspace: Tasks, watch: "Watch | None" = None, apart: float = CHECKPOINTS_APART) -> Failure | None:
        """Run or resume it; a known error is an answer, not an exception."""
        experiment = self.planned.experiment
        if isinstance(experiment.source, TaskIdentity):
            experiment = replace(experiment, source=workspace[experiment.source])
        try:
            make_run(
                experiment,
                self.planned.directory,
                identity=self.planned.identity,
                device=self.device,
                resume=True,
                apart=apart,
                watch=watch,
            )
        except EcgrError as error:
            reason = "; ".join(str(error).splitlines())
            return Failure(self.planned.name, reason, error.exit_code, isinstance(error, Diverged))
        return None


def plan(
    variants: Iterable[Experiment], directory: Path, folder: str = "runs", identify: Identify | None = None
) -> list[Planned]:
    """A place for each run: ``algorithm-regulator-seed-identity`` under ``directory/folder``.

    Of runs that differ in their number of rounds alone, at a constant learning rate, the longest is made.
    """
    identify = identify or Identify()
    planned: dict[str, Planned] = {}
    for experiment in variants:
        identity = identify(experiment)
        config = identity["config"]
        kind = re.sub(r"[^A-Za-z0-9._-]+", "", f"{config['algorithm']['name']}-{config['regulator']['name']}")
        name = f"{kind}-seed{experiment.run.seed}-{identity_key(identity)}"
        if name not in planned or planned[name].experiment.federation.rounds < experiment.federation.rounds:
            planned[name] = Planned(experiment, directory / folder / name, identity)
    return list(planned.values())


def run_all(
    plans: Sequence[Planned],
    *,
    workers: int | str = 1,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    progress: Progress | None = None,
    tolerated: Container[int] = (),
    needed: Container[str] = (),
    warn: Callable[[str], None] | None = None,
) -> None:
    """Make the runs that are left; one error with a line for each reason to fail, ``tolerated`` exit codes apart.

    Runs whose names are ``needed`` are made first; when one of them diverges, the others are not begun.
    ``warn`` hears why runs are made though there are some of the same settings.
    """
    if warn is not None:
        for line in made_anew({planned.directory: planned.identity for planned in plans}):
            warn(f"note: {line}")
        if lost := [planned for planned in plans if planned.rounds_done and not planned.goes_on]:
            what = f"{len(lost)} {'run has' if len(lost) == 1 else 'runs have'}"
            warn(f"note: {what} too few rounds and no checkpoint to go on from: made anew")
        for line in _model_notes(plans):
            warn(f"note: {line}")
    with progress(plans) if progress else nullcontext() as listener:
        found = execute(plans, workers=workers, engine=engine, device=device, listener=listener, needed=needed)
    failures = [failure for failure in found if failure.exit_code not in tolerated]
    if failures:
        if len(failures) == len(plans) and failures[0].hopeless and len(_by_reason(failures)) == 1:
            raise with_code(failures[0].exit_code, failures[0].reason)
        lines = [f"{_some(names)} failed: {reason}" for reason, names in _by_reason(failures).items()]
        again = [failure for failure in failures if not failure.final]
        tried = f"the same command tries {'them' if again == failures else 'the others'} again" if again else ""
        final = "" if again == failures else "those that diverged would again"
        lines.append("; ".join(filter(None, [f"{len(failures)} of {len(plans)} runs failed", final, tried])))
        raise with_code(failures[0].exit_code, *lines)


def execute(
    plans: Sequence[Planned],
    *,
    workers: int | str = 1,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    listener: Listener | None = None,
    needed: Container[str] = (),
) -> list[Failure]:
    """Do what is left of ``plans`` over ``workers`` processes; the failures, those of earlier commands first."""
    count = worker_count(workers)
    failures = [
        Failure(planned.name, reason, Diverged.exit_code, final=True)
        for planned in plans
        if (reason := planned.diverged) is not None
    ]
    if any(failure.name in needed for failure in failures):
        return failures
    left = [planned for planned in plans if not planned.finished and planned.diverged is None]
    left.sort(key=lambda planned: planned.name not in needed)
    for around in dict.fromkeys(planned.directory.parents[1] for planned in left):
        refuse_unusable(around)
        _refuse_run(around)
    if not left:
        return failures
    check_ready(left, engine=engine, device=device)
    from ecgr.runs.remote import seen_by_others  # loads torch
    from ecgr.simulation.engines import engine_kind  # loads torch
    from ecgr.simulation.engines.pool import Lost  # loads torch
    from ecgr.simulation.pickling import pack_for_workers, unpack  # loads torch

    sources = [planned.experiment.source for planned in left]
    tasks: Tasks = {source.identity: source for source in sources if isinstance(source, Task)}
    kind = engine_kind(engine or "pool", count)
    own = [RunJob(_without_task(planned), device, planned.name in needed) for planned in left]
    open_tasks = partial(unpack, pack_for_workers("task", tasks)) if kind.processes else lambda: tasks
    asked = asked_workers(workers, kind.remote)

    def begun(index: int, attempt: int) -> None:
        if listener is not None:
            listener.begun(left[index], attempt)

    with (
        seen_by_others(own) if kind.remote else nullcontext(own) as jobs,
        kind.open(open_tasks, None if asked is None else min(asked, len(left))) as chosen,
        closing(chosen.map(jobs, begun)) as answers,
    ):
        for planned, answer in zip(left, answers, strict=True):
            failure = Failure(planned.name, answer.reason, exit_code=5) if isinstance(answer, Lost) else answer
            if listener is not None:
                listener.ended(planned)
            if failure is not None:
                failures.append(failure)
                if failure.final and planned.name in needed:
                    break
    return failures


def check_ready(
    plans: Sequence[Planned], *, engine: "str | Cluster | None" = None, device: str = "cpu", partition: bool = False
) -> None:
    """Say once, before anything is written, what would stop every run: missing data, a device that is not there.

    With ``partition`` also a partition that cannot be had, which tuning would not notice: it has samples held out.
    """
    from ecgr.simulation.engines import engine_kind  # loads torch
    from ecgr.simulation.prepare import checked_device  # loads torch

    if engine_kind(engine or "pool", 1).remote:
        return  # other machines have data and devices of their own
    checked_device(device)
    sources = [planned.experiment.source for planned in plans if not planned.finished]
    for index, source in enumerate(sources):
        folder = getattr(source, "folder", None)  # of sets on disk: raises where they are not there
        if folder is not None and source not in sources[:index]:
            folder()
    if partition and (left := [planned.experiment for planned in plans if not planned.finished]):
        partition_of(left[0], chosen_share(left[0], left[0].source.load()))


def _model_notes(plans: Sequence[Planned]) -> tuple[str, ...]:
    """What to say of a user's model before its runs, which are made where nobody listens; errors are left to them."""
    left = (each.experiment for each in plans if not each.finished and isinstance(each.experiment.model, UserModel))
    experiment = next(left, None)
    if experiment is None:
        return ()
    from ecgr.simulation.prepare import prepare  # loads torch

    with suppress(EcgrError):
        return prepare(experiment, experiment.source.load()).notes
    return ()


def _without_task(planned: Planned) -> Planned:
    """The same run, its task by name alone."""
    experiment = planned.experiment
    if not isinstance(experiment.source, Task):
        return planned
    return replace(planned, experiment=replace(experiment, source=experiment.source.identity))


def drop_checkpoints(plans: Iterable[Planned]) -> None:
    """Remove the checkpoints of runs that have ended: nobody will go on with them."""
    for planned in plans:
        if planned.finished or planned.diverged is not None:
            rmtree(checkpoint_of(planned.directory), ignore_errors=True)


def _by_reason(failures: Sequence[Failure]) -> dict[str, list[str]]:
    """The names of runs that failed alike, together."""
    found: dict[str, list[str]] = {}
    for failure in failures:
        found.setdefault(failure.reason, []).append(failure.name)
    return found


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _refuse_run(directory: Path) -> None:
    """A directory that holds a run of its own cannot also hold a sweep or a comparison."""
    if RunRecord.is_run(directory):
        raise ConfigError(f"out: {directory} holds a single run; give another directory")


def grid(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Iterator[Experiment]:
    """The experiments of a sweep file: an experiment, optionally on a ``base``, times the lists of its ``[grid]``.

    With ``[[part]]`` tables the file is several such sweeps; what stands outside of them holds for each, and a part's
    own ``base``, sections and ``grid`` go before it.

    >>> swept = grid({"grid": {"run.seed": [0, 1], "regulator": {"beta": [0.0, 0.5]}}})
    >>> [(e.run.seed, e.regulator.beta) for e in swept]
    [(0, 0.0), (0, 0.5), (1, 0.0), (1, 0.5)]
    >>> parts = [{"data": {"name": "digits"}}, {"grid": {"run.seed": [1, 2]}}]
    >>> [e.run.seed for e in grid({"grid": {"run.seed": [0]}, "part": parts})]
    [0, 1, 2]
    """
    raw = read(source)
    where = str(source) if not isinstance(source, Mapping) else "sweep"
    parts = raw.pop("part", [{}])
    if not isinstance(parts, list) or not parts or not all(isinstance(part, Mapping) for part in parts):
        raise ConfigError(f"{where}: part: expected [[part]] tables, got {shown(parts)}")
    for part in parts:
        yield from _part(raw, part, where, overrides or {})


def _part(
    common: Mapping[str, Any], part: Mapping[str, Any], where: str, overrides: Mapping[str, Any]
) -> Iterator[Experiment]:
    """One part of a sweep file on what it shares with the others."""
    axes = {**_axes(common.get("grid", {}), where), **_axes(part.get("grid", {}), where)}
    if not axes:
        raise ConfigError(f"{where}: a sweep needs a [grid] section, for example with run.seed = [0, 1, 2]")
    base = part.get("base", common.get("base"))
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"base: expected a preset's name or a file, got {shown(base)}")
    raw = {} if base is None else read(base)
    for sections in (common, part):
        own = {section: values for section, values in sections.items() if section not in {"base", "grid"}}
        unfit = next((section for section, values in own.items() if not isinstance(values, Mapping)), None)
        if unfit is not None:
            raise ConfigError(
                f"{where}: {unfit}: expected a section with keys, as in [{unfit}], got {shown(own[unfit])}"
            )
        raw = override(
            raw, {f"{section}.{key}": value for section, values in own.items() for key, value in values.items()}
        )
    if twice := [key for key in overrides if key in axes]:
        raise ConfigError(f"{twice[0]}: is in [grid]; change it there")
    for values in product(*axes.values()):
        yield Experiment.from_dict(override(raw, {**overrides, **dict(zip(axes, values, strict=True))}))


def _axes(raw: Any, where: str) -> dict[str, list[Any]]:
    """The grid's dotted keys and their lists, written flat or nested."""
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where}: a sweep needs a [grid] section, for example with run.seed = [0, 1, 2]")
    axes: dict[str, list[Any]] = {}
    for key, value in raw.items():
        entries = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
        for name, values in entries.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"grid.{name}: expected a list of values, got {shown(values)}")
            axes[name] = values
    return axes
