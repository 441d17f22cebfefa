"""What a comparison needs to know of a run: its curve, where it ended, and how it was trained.

A curve is the task's primary metric by round, in its own unit and direction (`Quantity`). ``summaries.json`` holds the
curves of a comparison: all that it needs, small enough to keep where the runs themselves are not. Where clients are
scored on their own samples, `own_data` says how they fare: the worst of them, and how many are better off than alone.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.errors import ConfigError, DataError

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run.

    ``values`` are the primary metric by round, None where it was not finite; ``setting`` labels what runs to be
    compared must have in common; ``chance`` is what a constant guess reaches; ``diverged`` says that a score or a
    server step was not finite; ``rate`` is the clients' learning rate, ``constant_rate`` whether it stays so, ``tuned``
    whether it was chosen for the method; ``overlap`` is the ratio of test to training samples where the split is
    redrawn with the seed; ``privacy`` is what the record says of its last round; ``own`` is each client's score in the
    last round, where it is scored on its own samples; ``sent`` is how many bytes the last round took, up and down;
    ``weight`` is what a run counts in the mean of a seed's clients
    that trained alone.

    >>> run = RunSummary("fedavg+ecgr", seed=0, values=(0.5, 0.6))
    >>> run.name, run.end
    ('fedavg+ecgr seed 0', 0.6)
    """

    method: str
    seed: int
    values: Values
    setting: str = ""
    metric: Quantity = ACCURACY
    chance: float | None = None
    diverged: bool = False
    rate: float | None = None
    constant_rate: bool = True
    tuned: bool = False
    overlap: float | None = None
    privacy: Mapping[str, float | None] | None = None
    own: tuple[tuple[int, float], ...] = ()
    sent: int | None = None
    weight: float = 1

    def __post_init__(self) -> None:
        known = [value for value in self.values if value is not None]
        if wrong := [value for value in known if not math.isfinite(value)]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a finite number")
        if wrong := [value for value in known if self.metric.is_share and not 0 <= value <= 1]:
            raise ConfigError(f"{self.name}: {self.metric.name} {wrong[0]} is not a share between 0 and 1")

    @property
    def rounds(self) -> int:
        return len(self.values)

    @property
    def end(self) -> float | None:
        """The last round's value; None where training diverged on the way, or before the first round."""
        return None if self.failed or not self.values else self.values[-1]

    @property
    def failed(self) -> bool:
        return self.diverged or None in self.values

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.setting, self.method) if part) + f" seed {self.seed}"


def mean_or_none(values: Sequence[float | None], weights: Sequence[float] | None = None) -> float | None:
    """The mean; None where one of them is missing, or there is none."""
    known = [value for value in values if value is not None]
    return fmean(known, weights) if known and len(known) == len(values) else None


def summaries_json(summaries: Sequence[RunSummary]) -> str:
    """One line a run; what is as usual is left out.

    >>> print(summaries_json([RunSummary("fedavg", 0, values=(0.5,))]), end="")
    [
    {"method": "fedavg", "metric": {"larger_is_better": true, "name": "accuracy", "unit": "share"}, "seed": 0,
    "values": [0.5]}
    ]
    """
    usual = {field.name: field.default for field in fields(RunSummary) if field.default is not MISSING}
    usual.pop("metric")
    lines = [
        json.dumps({k: v for k, v in asdict(summary).items() if k not in usual or v != usual[k]}, sort_keys=True)
        for summary in summaries
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def read_summaries(path: Path) -> list[RunSummary]:
    """What `summaries_json` wrote; raises `DataError` for anything else."""
    try:
        rows: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(rows, list):
            raise TypeError("it holds no list of them")
        return [_summary(row) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path}: not summaries of runs ({error or type(error).__name__}); `ecgr compare` writes them"
        ) from None


def _summary(row: Mapping[str, Any]) -> RunSummary:
    own = tuple((int(client), float(value)) for client, value in row.get("own", ()))
    return RunSummary(**{**row, "metric": Quantity(**row["metric"]), "values": tuple(row["values"]), "own": own})


@dataclass(frozen=True, slots=True)
class OwnData:
    """The clients of one method over all seeds, at the last round.

    ``worst`` is the worst client and ``worst_tenth`` what a tenth of them do not reach, both means over seeds. Of the
    clients that also trained alone (``compared``), ``better`` and ``worse`` are so than alone, on the same samples.
    """

    method: str
    setting: str
    clients: int
    worst: float
    worst_tenth: float
    better: int
    worse: int
    compared: int


def own_data(runs: Iterable[RunSummary]) -> list[OwnData]:
    """A line for each method whose clients were scored on their own samples.

    >>> alone = [RunSummary("alone", 0, (0.5,), own=((0, 0.4), (1, 0.6)))]
    >>> (found,) = own_data([*alone, RunSummary("fedavg", 0, (0.7,), own=((0, 0.9), (1, 0.5), (2, 0.7)))])
    >>> found.better, found.worse, found.compared, found.clients, found.worst
    (1, 1, 2, 3, 0.5)
    """
    groups: dict[tuple[str, str], dict[int, Mapping[int, float]]] = {}
    signs = {}
    for run in runs:
        if run.own and not run.failed:
            groups.setdefault((run.setting, run.method), {})[run.seed] = dict(run.own)
            signs[run.setting] = run.metric.gain(1.0)
    found = []
    for (setting, method), seeds in groups.items():
        sign, alone = signs[setting], groups.get((setting, "alone"), {})
        pairs = [(own, alone[seed]) for seed, own in seeds.items() if seed in alone]
        gains = [sign * (own[c] - by_itself[c]) for own, by_itself in pairs for c in own.keys() & by_itself]
        ordered = [sorted(sign * score for score in own.values()) for own in seeds.values()]
        worst, tenth = fmean(each[0] for each in ordered), fmean(map(_tenth, ordered))
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        clients = sum(map(len, ordered))
        found.append(OwnData(method, setting, clients, sign * worst, sign * tenth, better, worse, len(gains)))
    return [each for each in found if each.method != "alone"]


def _tenth(ordered: list[float]) -> float:
    """The first decile, as numpy has it."""
    return quantiles(ordered, n=10, method="inclusive")[0] if len(ordered) > 1 else ordered[0]
