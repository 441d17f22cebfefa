"""The main job: runs of a comparison planned, and finished runs compared."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.analysis.collect import find_runs, summarise
from ecgr.analysis.comparison import Comparison
from ecgr.analysis.comparison import compare as compare_summaries
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import to_json as summaries_json
from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment, override, read
from ecgr.files import write_atomically
from ecgr.report.presentation import to_csv
from ecgr.report.presentation import to_json as comparison_json
from ecgr.runs.record import RunRecord, to_json

PAPER_SEEDS = (0, 1, 42, 999, 2025)


def paired(
    source: str | Path | Mapping[str, Any],
    *,
    seeds: Sequence[int] = PAPER_SEEDS,
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Experiment]:
    """The runs of a comparison: regulators paired by seed, for each algorithm.

    By default the experiment's own algorithm, and its own regulator against ``none``.
    """
    raw = override(read(source), overrides or {})
    own = Experiment.from_dict(raw).to_dict()
    chosen = list(dict.fromkeys(["none", *(regulators or [own["regulator"]["name"]])]))
    if len(chosen) < 2:
        raise ConfigError(
            "--regulators: nothing to compare with none; give another, for example --regulators none,ecgr"
        )
    return [
        Experiment.from_dict(
            override(raw, {"algorithm.name": algorithm, "regulator.name": regulator, "run.seed": seed})
        )
        for algorithm in algorithms or [own["algorithm"]["name"]]
        for regulator in chosen
        for seed in seeds
    ]


def compare(
    runs: Iterable[RunRecord | str | Path], baseline: str = "none", *, treatment: Sequence[str] = ()
) -> Comparison:
    """Compare finished runs, given as records or directories: regulators against ``baseline``, paired by seed.

    Config keys named as ``treatment`` (``run.step_control``, ``algorithm.server_lr``) are compared as regulators are.
    """
    return compare_summaries(summaries_of(runs, treatment), baseline)


def summaries_of(runs: Iterable[RunRecord | str | Path], treatment: Sequence[str] = ()) -> list[RunSummary]:
    """The finished ones among ``runs``, labelled for a comparison."""
    records: list[RunRecord] = []
    for entry in runs:
        records += [entry] if isinstance(entry, RunRecord) else find_runs([entry])
    finished = [record for record in records if record.finished]
    if not finished:
        raise ConfigError("compare: none of the runs is finished")
    unknown = [key for key in treatment if not any(_has(record, key) for record in finished)]
    if unknown:
        raise ConfigError(f"--treatment: no run has {unknown[0]}; give config keys, for example run.step_control")
    return summarise(finished, treatment)


def _has(record: RunRecord, key: str) -> bool:
    section, _, name = key.partition(".")
    return name in record.config.get(section, {})


def write_comparison(comparison: Comparison, summaries: Sequence[RunSummary], directory: Path) -> None:
    """``comparison.json``, ``comparison.csv``, and ``summaries.json``, from which both can be made again."""
    write_atomically(directory / "comparison.json", to_json(comparison_json(comparison), indent=2))
    write_atomically(directory / "comparison.csv", to_csv(comparison).encode())
    write_atomically(directory / "summaries.json", summaries_json(summaries).encode())
