"""Many runs: a grid or a paired comparison, each run in a process of its own, named by its identity.

What is finished is skipped, what is partial goes on, what failed is reported; so the same command, given again, does
exactly what is left.
"""

import re
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from ecgr.config.experiment import OWN, Experiment, read
from ecgr.config.partition import divided
from ecgr.config.registry import override
from ecgr.errors import ConfigError, DataError, Diverged, EcgrError, with_code
from ecgr.runs.differences import Identity, made_anew
from ecgr.runs.identity import Identify, identity_key
from ecgr.runs.record import RunRecord, RunWriter, checkpoint_of, pack_rounds, read_lines, refuse_unusable
from ecgr.runs.runner import AUTO, Watch, run, worker_count
from ecgr.tables import shown
from ecgr.tasks.task import Task, TaskIdentity

if TYPE_CHECKING:
    from ecgr.simulation.engines import EngineKind
    from ecgr.simulation.engines.ray import Cluster

CHECKPOINTS_APART = 5.0
"""Seconds: the most that a crash costs a run of many; writing one after each of its short rounds would cost more."""
FIRST = 10**9
"""More rounds than any run has."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a sweep and its place."""

    experiment: Experiment
    directory: Path
    identity: Identity

    @property
    def name(self) -> str:
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
    def rounds_done(self) -> int:
        """Rounds in the record so far, of those that it is to have."""
        return min(self.experiment.federation.rounds, len(read_lines(self.directory)))

    @property
    def rounds_left(self) -> int:
        return self.experiment.federation.rounds - self.rounds_done


Listener = Callable[[PlannedRun, int], None]
"""Called when a run is handed to a worker, with the number of the attempt, and with 0 when it finished or failed."""

Progress = Callable[[Sequence[PlannedRun]], AbstractContextManager[Listener]]
"""Shows what runs: given the plans, a context around them with a listener."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run did not finish."""

    name: str
    reason: str
    exit_code: int
    final: bool = False


Tasks = Mapping[TaskIdentity, Task]
"""The tasks of some runs: they travel once to each process, not with every run."""


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run as a job for a process pool."""

    planned: PlannedRun
    device: str = "cpu"
    needed: bool = False

    @property
    def cost(self) -> int:
        """Rounds left: long runs start first, after those that the others need."""
        return self.planned.rounds_left + (FIRST if self.needed else 0)

    def run(self, workspace: Tasks, watch: Watch | None = None, apart: float = CHECKPOINTS_APART) -> Failure | None:
        """Run or resume it; a known error is an answer, not an exception."""
        experiment = self.planned.experiment
        if isinstance(experiment.source, TaskIdentity):
            experiment = replace(experiment, source=workspace[experiment.source])
        try:
            identity, directory = self.planned.identity, self.planned.directory
            run(experiment, directory, identity=identity, device=self.device, resume=True, apart=apart, watch=watch)
        except EcgrError as error:
            reason = "; ".join(str(error).splitlines())
            return Failure(self.planned.name, reason, error.exit_code, isinstance(error, Diverged))
        return None


def plan_runs(
    variants: Iterable[Experiment], directory: Path, folder: str = "runs", identify: Identify | None = None
) -> list[PlannedRun]:
    """A place for each run: ``algorithm-regulator-seed-identity`` under ``directory/folder``.

    Of runs that differ in their number of rounds alone, at a constant learning rate, the longest is made.
    """
    identify = identify or Identify()
    planned: dict[str, PlannedRun] = {}
    for experiment in variants:
        identity = identify(experiment)
        config = identity["config"]
        kind = re.sub(r"[^A-Za-z0-9._-]+", "", f"{config['algorithm']['name']}-{config['regulator']['name']}")
        name = f"{kind}-seed{experiment.run.seed}-{identity_key(identity)}"
        if name not in planned or planned[name].experiment.federation.rounds < experiment.federation.rounds:
            planned[name] = PlannedRun(experiment, directory / folder / name, identity)
    return list(planned.values())


def run_all(
    plans: Sequence[PlannedRun],
    *,
    workers: int | str = 1,
    engine: "str | Cluster | None" = None,
    device: str = "cpu",
    progress: Progress | None = None,
    tolerated: int | None = None,
    needed: Container[str] = (),
    optional: Callable[[PlannedRun], str | None] | None = None,
    diverged: Callable[[PlannedRun], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Make the runs that are left; one error with a line for each reason to fail, but for a ``tolerated`` exit code.

    Runs whose names are ``needed`` are made first; when one of them diverges, the others are not begun. Those that are
    ``optional``, which says what for, may fail: ``warn`` hears why. ``diverged`` hears of each that does, at once.
    ``warn`` hears why runs are made though there are some of the same settings.
    """
    count = worker_count(workers)
    if warn is not None:
        for line in _notes(plans):
            warn(f"note: {line}")
    ended = {planned.name: reason for planned in plans if (reason := planned.diverged) is not None}
    failures = [Failure(name, reason, Diverged.exit_code, final=True) for name, reason in ended.items()]
    left = [planned for planned in plans if not planned.finished and planned.name not in ended]
    left.sort(key=lambda planned: planned.name not in needed)
    with progress(plans) if progress else nullcontext() as listener:
        if left and not any(name in needed for name in ended):
            check_ready(left, engine=engine, device=device)
            for around in dict.fromkeys(planned.directory.parents[1] for planned in left):
                refuse_unusable(around)
                if RunRecord.is_run(around):
                    raise ConfigError(f"out: {around} holds a single run; give another directory")
            from ecgr.simulation.engines import engine_kind  # loads torch

            kind = engine_kind(engine or "pool", count)
            asked = None if kind.remote and workers == AUTO else count  # None: as many as there is room for
            jobs = [RunJob(_without_task(planned), device, planned.name in needed) for planned in left]
            with closing(_answers(left, jobs, kind, asked, listener or (lambda planned, attempt: None))) as answers:
                for planned, failure in zip(left, answers, strict=False):
                    failures += [] if failure is None else [failure]
                    if failure is not None and failure.final:
                        if diverged is not None:
                            diverged(planned)
                        if failure.name in needed:
                            break
    failures = [failure for failure in failures if failure.exit_code != tolerated]
    spared = {run.name: what for run in plans if optional is not None and (what := optional(run)) is not None}
    for failure in failures:
        if failure.name in spared and warn is not None:
            warn(f"note: {spared[failure.name]} left out: {failure.reason}")
    failures = [failure for failure in failures if failure.name not in spared]
    if failures:
        raise _error(failures, len(plans))


def _answers(
    plans: Sequence[PlannedRun], own: Sequence[RunJob], kind: "EngineKind", workers: int | None, listener: Listener
) -> Generator[Failure | None, None, None]:
    """Why each run failed, or None, in the order of the plans."""
    from ecgr.runs.remote import seen_by_others  # loads torch
    from ecgr.simulation.engines.pool import Lost  # loads torch
    from ecgr.simulation.pickling import pack_for_workers, unpack  # loads torch

    sources = [planned.experiment.source for planned in plans]
    tasks: Tasks = {source.identity: source for source in sources if isinstance(source, Task)}
    open_tasks = partial(unpack, pack_for_workers("task", tasks)) if kind.processes else lambda: tasks
    with (
        seen_by_others(own) if kind.remote else nullcontext(own) as jobs,
        kind.open(open_tasks, None if workers is None else min(workers, len(plans))) as engine,
        closing(engine.map(jobs, lambda index, attempt: listener(plans[index], attempt))) as answers,
    ):
        for planned, answer in zip(plans, answers, strict=True):
            listener(planned, 0)
            yield Failure(planned.name, answer.reason, exit_code=5) if isinstance(answer, Lost) else answer


def _error(failures: Sequence[Failure], total: int) -> EcgrError:
    """One error with a line for each reason; alone, where all failed for one that lies in what they were given."""
    reasons: dict[str, list[str]] = {}
    for failure in failures:
        reasons.setdefault(failure.reason, []).append(failure.name)
    code = failures[0].exit_code
    if len(failures) == total and len(reasons) == 1 and code in (ConfigError.exit_code, DataError.exit_code):
        return with_code(code, *reasons)
    lines = []
    for reason, (first, *others) in reasons.items():
        more = f" and {len(others)} more" if others else ""
        lines.append(f"{first}{more} failed: {reason}")
    last, final = f"{len(failures)} of {total} runs failed", sum(failure.final for failure in failures)
    if final:
        last += "; those that diverged would again"
    if final < len(failures):
        last += f"; the same command tries {'the others' if final else 'them'} again"
    return with_code(code, *lines, last)


def check_ready(
    plans: Sequence[PlannedRun], *, engine: "str | Cluster | None" = None, device: str = "cpu", partition: bool = False
) -> None:
    """Say once, before anything is written, what would stop every run: missing data, a device that is not there.

    With ``partition`` also a partition that cannot be had, which tuning would not notice: it has samples held out.
    """
    from ecgr.simulation.engines import engine_kind  # loads torch
    from ecgr.simulation.prepare import checked_device  # loads torch

    if engine_kind(engine or "pool", 1).remote:
        return  # other machines have data and devices of their own
    checked_device(device)
    left = [planned.experiment for planned in plans if not planned.finished]
    for experiment in left:
        getattr(experiment.source, "folder", lambda: None)()  # of sets on disk: raises where they are not there
    if left and (partition or left[0].data.score == OWN):
        divided(left[0], left[0].source.load())


def _notes(plans: Sequence[PlannedRun]) -> Iterator[str]:
    """Why runs are made though there are some, and notes on a user's model: workers have nobody to tell."""
    yield from made_anew({planned.directory: planned.identity for planned in plans})
    begun = [each for each in plans if each.rounds_done and not each.record.ended]
    if lost := [each for each in begun if not checkpoint_of(each.directory).is_dir()]:
        what = f"{len(lost)} {'run has' if len(lost) == 1 else 'runs have'}"
        yield f"{what} too few rounds and no checkpoint to go on from: made anew"
    left = (each.experiment for each in plans if not each.finished and not isinstance(each.experiment.model.given, str))
    if (experiment := next(left, None)) is not None:
        from ecgr.simulation.prepare import prepare  # loads torch

        with suppress(EcgrError):  # said by the run
            yield from prepare(experiment, experiment.source.load()).notes


def _without_task(planned: PlannedRun) -> PlannedRun:
    """The same run, its task by name alone."""
    experiment = planned.experiment
    if not isinstance(experiment.source, Task):
        return planned
    return replace(planned, experiment=replace(experiment, source=experiment.source.identity))


def settle(plans: Iterable[PlannedRun], scored_only: Callable[[PlannedRun], str | None]) -> None:
    """Remove the checkpoints of runs that have ended, and pack their rounds: nobody will go on with them.

    Of those that are ``scored_only``, as references are, the models go, too.
    """
    for planned in plans:
        if planned.record.ended:
            rmtree(checkpoint_of(planned.directory), ignore_errors=True)
            pack_rounds(planned.directory)
            if planned.finished and scored_only(planned) is not None:
                RunWriter(planned.directory).finish({})


def duration(seconds: float) -> str:
    """A time to read.

    >>> duration(42.4), duration(200), duration(8000)
    ('42 s', '3 min 20 s', '2 h 13 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
    base = part.get("base", common.get("base"))
    if base is not None and not isinstance(base, str):
        raise ConfigError(f"base: expected a preset's name or a file, got {shown(base)}")
    raw = {} if base is None else read(base)
    axes: dict[str, list[Any]] = {}
    for section, values in (*common.items(), *part.items()):
        if section == "base":
            continue
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{where}: {section}: expected a section with keys, as in [{section}], got {shown(values)}"
            )
        if section == "grid":
            axes |= _axes(values)
        else:
            raw = override(raw, {f"{section}.{key}": value for key, value in values.items()})
    if not axes:
        raise ConfigError(f"{where}: a sweep needs a [grid] section, for example with run.seed = [0, 1, 2]")
    if twice := [key for key in overrides if key in axes]:
        raise ConfigError(f"{twice[0]}: is in [grid]; change it there")
    for values in product(*axes.values()):
        yield Experiment.from_dict(override(raw, {**overrides, **dict(zip(axes, values, strict=True))}))


def _axes(raw: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The grid's dotted keys and their lists, written flat or nested."""
    axes: dict[str, list[Any]] = {}
    for key, value in raw.items():
        axes |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"grid.{name}: expected a list of values, got {shown(values)}")
    return axes
