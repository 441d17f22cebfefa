"""The runs of a comparison: its arms, each with the same seeds, so that every run has its partner."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ecgr.errors import ConfigError
from ecgr.experiment.config import Experiment, override, read

SEEDS = 10
"""With fewer, hardly any comparison can decide anything."""


def paired(
    source: str | Path | Mapping[str, Any],
    *,
    seeds: Sequence[int],
    regulators: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Experiment]:
    """Regulators paired by seed, for each algorithm.

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


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """The seeds meant by a number of them, by text, or by the seeds themselves.

    >>> seed_list(3), seed_list("3"), seed_list("0,1,42"), seed_list("3-5"), seed_list([7])
    ([0, 1, 2], [0, 1, 2], [0, 1, 42], [3, 4, 5], [7])
    """
    found: Iterable[Any]
    if isinstance(seeds, int):
        found = range(seeds)
    elif isinstance(seeds, str):
        found = _seeds_in(seeds.strip())
    else:
        found = seeds
    chosen = list(found)
    fits = chosen and all(type(seed) is int and seed >= 0 for seed in chosen) and len(set(chosen)) == len(chosen)
    if isinstance(seeds, bool) or not fits:
        raise ConfigError(
            f"--seeds: {seeds!r} does not fit; give how many (10 means 0 to 9), which (0,1,42), or a range (3-7)"
        )
    return chosen


def _seeds_in(text: str) -> Sequence[int]:
    if text.isdecimal():
        return range(int(text))
    if span := re.fullmatch(r"(\d+)\s*-\s*(\d+)", text):
        return range(int(span[1]), int(span[2]) + 1)
    try:
        return [int(seed) for seed in text.rstrip(",").split(",")]
    except ValueError:
        return []
