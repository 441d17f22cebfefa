"""What the findings of a run are called, in data that outlives the run directories and in the figures drawn from it."""

import math
from collections.abc import Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any

from ecgr.analysis.collect import Run
from ecgr.analysis.labels import flat, varying_keys
from ecgr.report.visible import visible

Entry = Mapping[str, Any]
"""What was found in one run: its labels and its numbers, as JSON holds them."""

WORDS = {
    "data.name": "{}",
    "algorithm.name": "{}",
    "regulator.name": "{}",
    "partition.alpha": "alpha {}",
    "optimizer.lr": "lr {}",
    "regulator.beta": "beta {}",
    "run.buffers": "buffers {}",
    "federation.rounds": "{} rounds",
}
"""The settings that every entry holds, in the order in which titles name them, and how."""
ALWAYS = "data.name"
MOST_LINES = 4


def labels(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each run its labels: what a report calls it, and the settings that tell it from the others."""
    configs = [flat(run.record.config) for run in runs]
    keys = dict.fromkeys([*WORDS, *varying_keys(configs)])
    return [
        {
            "run": run.name,
            "setting": run.summary.setting,
            "algorithm": run.summary.algorithm,
            "regulator": run.summary.regulator,
            "seed": run.summary.seed,
            "finished": run.state == "finished",
            "config": {key: config[key] for key in keys if key in config},
        }
        for run, config in zip(runs, configs, strict=True)
    ]


def titles(entries: Sequence[Entry], without: Collection[str] = ()) -> list[str]:
    """A title for each entry: its data, and as few settings as tell the entries apart; seeds share one.

    Settings in ``without`` are passed over, for figures that show them otherwise.

    >>> a, b = ({"config": {"data.name": "digits", "optimizer.lr": 0.1, "run.n": n}} for n in (1, 2))
    >>> titles([a, b]), titles([a, b], without={"run.n"})
    (['digits, run.n = 1', 'digits, run.n = 2'], ['digits', 'digits'])
    """
    configs = [entry["config"] for entry in entries]
    known = dict.fromkeys([*WORDS, *(key for config in configs for key in sorted(config))])
    used = [ALWAYS]
    for key in known:
        if key not in without and _kinds(configs, [*used, key]) > _kinds(configs, used):
            used.append(key)
    return [
        str(visible(", ".join(WORDS.get(key, f"{key} = {{}}").format(config[key]) for key in used if key in config)))
        for config in configs
    ]


def sort_entries(entries: Sequence[Entry]) -> list[Entry]:
    """By data, method and settings, numbers by their size, then by seed: whatever the directories were called.

    >>> entries = [{"config": {"optimizer.lr": lr}, "seed": n} for n, lr in ((0, 10.0), (1, 9.0))]
    >>> [entry["seed"] for entry in sort_entries(entries)]
    [1, 0]
    """

    def place(value: Any) -> tuple[float, str]:
        return (float(value), "") if isinstance(value, (int, float)) else (-math.inf, str(value))

    return sorted(entries, key=lambda entry: (*(place(entry["config"].get(key)) for key in WORDS), entry["seed"]))


def wrap_title(title: str, inches: float) -> str:
    """A title in lines that fit above a panel of that width, broken between settings; four lines at most.

    >>> wrap_title("cifar10, alpha 0.01, lr 0.001", inches=1.6).splitlines()
    ['cifar10, alpha 0.01,', 'lr 0.001']
    """
    hard = title.replace(" ", "\xa0").replace(",\xa0", ", ")
    lines = [line.replace("\xa0", " ") for line in wrap(hard, max(12, int(13.5 * inches)))]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "…"])


def significant(value: Any) -> Any:
    """A number to five significant digits; None for what is not a finite number. Whole numbers stay.

    >>> significant(0.123456789), significant(3), significant(float("nan")), significant(None)
    (0.12346, 3, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(f"{value:.5g}")


def _kinds(configs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    return len({tuple(repr(config.get(key)) for key in keys) for config in configs})
