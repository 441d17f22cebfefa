"""The main job as one function: plan, run, judge, write. The command line calls exactly this and prints the answer."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from ecgr.analysis.arms import BASELINE, Run, read_runs, summaries_of
from ecgr.analysis.collect import find_runs
from ecgr.analysis.comparison import Comparison, Pair
from ecgr.analysis.comparison import compare as judge
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import read_summaries
from ecgr.analysis.summaries import to_json as summaries_json
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.experiment.config import Experiment, presets
from ecgr.files import write_atomically
from ecgr.report.page.html import write_report
from ecgr.report.picture import Picture
from ecgr.report.presentation import to_csv, to_table
from ecgr.report.presentation import to_json as comparison_json
from ecgr.report.sentences import answer, best_first, sentence
from ecgr.runs.paired import SEEDS, paired, seed_list
from ecgr.runs.record import RunRecord, to_json
from ecgr.runs.sweep import Planned, Progress, plan, run_all
from ecgr.runs.workers import AUTO

Warn = Callable[[str], None]
WIDTH = 100


@dataclass(frozen=True, eq=False)
class Answer:
    """What a comparison says: ``print`` gives its sentences and its table.

    ``runs`` is empty where the comparison was made of ``summaries`` alone; ``directory`` is where the files lie, None
    where none were written.
    """

    comparison: Comparison
    summaries: Sequence[RunSummary]
    runs: Sequence[Run] = ()
    directory: Path | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each arm against the baseline, with its estimates and its verdict."""
        return self.comparison.pairs

    def to_json(self) -> str:
        """The text of ``comparison.json``; its keys are described in ``docs/reference/statistics.md``."""
        return to_json(comparison_json(self.comparison), indent=2).decode()

    def report(self, path: str | Path) -> Path:
        """Write the page about the runs and this comparison to ``path``, which it returns."""
        if not self.runs:
            raise ConfigError("report: a comparison of summaries has no runs to report on; compare their directories")
        return write_report(self.runs, self.comparison, Path(path))

    def write(self, directory: Path) -> None:
        """``comparison.json``, ``comparison.csv``, and ``summaries.json``, from which both can be made again."""
        write_comparison(self.comparison, self.summaries, directory)

    def __rich__(self) -> Group:
        sentences = (Text(sentence(pair)) for pair in best_first(self.pairs))
        return Group(
            Text(answer(self.comparison), "bold"), Picture(self.comparison), *sentences, to_table(self.comparison)
        )

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None).print(self)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def compare(
    source: Any = "quickstart",
    baseline: str | None = None,
    *,
    seeds: int | str | Iterable[int] | None = None,
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    treatment: Sequence[str] = (),
    workers: int | str = AUTO,
    engine: str | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
    warn: Warn | None = None,
) -> Answer:
    """Make paired runs, judge them, write what was found, and return it.

    >>> from tempfile import mkdtemp
    >>> few = {"federation.rounds": 1, "partition.clients": 3}
    >>> answer = compare("quickstart", seeds=2, settings=few, out=mkdtemp())
    >>> answer.pairs[0].regulator, answer.pairs[0].seeds
    ('ecgr', (0, 1))
    >>> sorted(path.name for path in answer.directory.iterdir())
    ['comparison.csv', 'comparison.json', 'report.html', 'runs', 'summaries.json']
    >>> compare([answer.directory]).pairs == answer.pairs
    True

    Args:
        source: a preset's name, a TOML file, an `Experiment` or a nested dict to be run; or what is finished and only
            compared: a directory of runs, an iterable of records and directories, a ``summaries.json``.
        baseline: what the others are compared with; the regulator ``none`` by default.
        seeds: how many, or which; 10 by default, which are 0 to 9.
        regulators: those to be compared with ``none``; by default the experiment's own.
        algorithms: under each of these; by default the experiment's own.
        settings: dotted config keys to change, as in ``{"schedule.name": "cosine"}``.
        treatment: config keys that are compared as regulators are.
        workers: processes that make runs, or ``auto``: one a core; the results do not depend on it.
        engine: ``pool`` (processes, the default) or ``serial`` (everything in this one).
        device: where to compute.
        out: where runs and results lie; ``runs/compare-NAME`` by default. What is finished there is not run again.
            For finished runs: where the results go, by default into their directory, or nowhere if there are several.
        progress: shows the runs under way.
        warn: called with what a person should know, as that there is no page because the extra is missing.
    """
    asked: dict[str, Any] = {"seeds": seeds, "regulators": regulators, "algorithms": algorithms, "settings": settings}
    material = made_already(source)
    if material is None:
        plans, directory = planned(source, out=out, **asked)
        refuse_unknown_treatment(treatment, plans)
        run_all(plans, workers=workers, engine=engine, device=device, progress=progress)
        material = Material(find_runs(each.directory for each in plans), directory=directory)
    elif given := [name for name, value in asked.items() if value]:
        raise ConfigError(f"--{given[0]}: {source} is only compared, not run; leave out --{given[0]}")
    runs = read_runs(material.records, treatment) if material.records else []
    summaries = material.summaries or summaries_of(runs)
    if not summaries:
        raise ConfigError("compare: none of the runs is finished")
    place = material.directory if out is None else Path(out)
    comparison = judge(summaries, baseline or BASELINE)
    if not any(pair.seeds for pair in comparison.pairs):
        arms = "; ".join(dict.fromkeys(f"{run.algorithm}, {run.regulator}" for run in summaries))
        raise ConfigError(f"compare: nothing to compare: no seed has {comparison.baseline} and another ({arms})")
    answer = Answer(comparison, summaries, runs, place)
    if place is not None:
        _write(answer, place, warn or _ignore)
    return answer


@dataclass(frozen=True, eq=False)
class Material:
    """What is there to be compared, runs or their summaries, and the directory that it lies in."""

    records: Sequence[RunRecord] = ()
    summaries: Sequence[RunSummary] = ()
    directory: Path | None = None


def made_already(source: Any) -> Material | None:
    """The runs or summaries that ``source`` names; None if it is something to be run. A preset hides a directory."""
    if isinstance(source, (str, Path)):
        path = Path(source)
        if str(source) in presets():
            return None
        if path.is_dir():
            return Material(find_runs([path]), directory=path)
        is_file = path.suffix == ".json" and path.is_file()
        return Material(summaries=read_summaries(path), directory=path.parent) if is_file else None
    if isinstance(source, RunRecord):
        return Material([source])
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        entries = [[entry] if isinstance(entry, RunRecord) else find_runs([entry]) for entry in source]
        return Material([record for records in entries for record in records])
    return None


def planned(
    source: Any,
    *,
    seeds: int | str | Iterable[int] | None = None,
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
) -> tuple[list[Planned], Path]:
    """The runs of a comparison and the directory that it lives in; nothing is written."""
    experiments = paired(
        source.to_dict() if isinstance(source, Experiment) else source,
        seeds=seed_list(SEEDS if seeds is None else seeds),
        regulators=regulators,
        algorithms=algorithms,
        overrides=settings,
    )
    name = experiments[0].run.name
    directory = Path(out) if out is not None else Path("runs") / (f"compare-{name}" if name else "compare")
    return plan(experiments, directory), directory


def refuse_unknown_treatment(treatment: Sequence[str], plans: Sequence[Planned]) -> None:
    """A treatment that no run has, said before anything runs."""
    keys = {f"{s}.{key}" for each in plans for s, values in each.experiment.to_dict().items() for key in values}
    missing = [key for key in treatment if key not in keys]
    if missing:
        raise ConfigError(f"--treatment: no run has {missing[0]}; give config keys, for example run.step_control")


def write_comparison(comparison: Comparison, summaries: Sequence[RunSummary], directory: Path) -> None:
    """``comparison.json``, ``comparison.csv``, and ``summaries.json``, from which both can be made again."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {directory}: {error.strerror or error}") from None
    write_atomically(directory / "comparison.json", to_json(comparison_json(comparison), indent=2))
    write_atomically(directory / "comparison.csv", to_csv(comparison).encode())
    write_atomically(directory / "summaries.json", summaries_json(summaries).encode())


def _write(answer: Answer, directory: Path, warn: Warn) -> None:
    answer.write(directory)
    if answer.runs:
        try:
            answer.report(directory / "report.html")
        except EnvironmentFault as error:  # the numbers are there; without the extra `report` only the page is missing
            warn(f"note: no report page: {error}")


def _ignore(_: str) -> None:
    """Nobody listens."""


class _Callable(ModuleType):
    """``ecgr.compare`` is the function, or this module where somebody imported it by path first: both can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Answer:
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
