"""How clients fare, each scored on its own samples: the worst of them, and how many are better off than alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, quantiles

from ecgr.analysis.summaries import RunSummary


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
