"""From runs to findings: who is paired with whom, in which unit, and what the references say.

Methods meet the baseline seed by seed, setting by setting. Findings are in the metric's own unit: of an error, where
smaller is better, a negative difference is an improvement.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ecgr.analysis.curves import Curves, Estimate, end, paired
from ecgr.analysis.findings import Pair, estimate, judge
from ecgr.analysis.power import seeds_for_effect
from ecgr.analysis.quantities import Quantity, at_chance
from ecgr.analysis.records import Run
from ecgr.analysis.statistics import hedges_dz
from ecgr.analysis.summaries import RunSummary, mean_or_none
from ecgr.errors import ConfigError

BASELINE = "fedavg"
REFERENCES = ("alone", "pooled", "server alone")
"""Rows to measure by, never compared: each client by itself, one model on everybody's data, the server by itself."""
NO_MARGIN = 1e-300
"""For a baseline that ends at zero, where a share of its level is nothing."""

BySeed = Mapping[int, RunSummary]


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a reference ended, and what it is above the baseline (below, for an error) on the same seeds."""

    name: str
    setting: str
    score: float
    difference: Estimate
    metric: Quantity
    margin: float

    @property
    def side(self) -> int:
        """Whether it was shown to be better than the baseline by more than the margin (1), worse (-1), or neither."""
        if self.difference.interval is None:
            return 0
        low, high = sorted(self.metric.gain(bound) for bound in self.difference.interval)
        return int(low > self.margin) - int(high < -self.margin)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What a comparison found: all pairs, in the order in which their runs were first seen.

    ``runs`` is empty where it was made of ``summaries`` alone; ``directory`` is where its files lie, None where none
    were written. ``head`` is what an LDA head on the baseline's features gains, where that was computed. ``tuning``
    has, by method, what ``tuning.json`` says: the values that were ``chosen``, what would have been without each of the
    tuning seeds and how many of them are ``agreeing``, and all ``trials`` with their scores.
    """

    baseline: str
    pairs: tuple[Pair, ...]
    references: tuple[Reference, ...] = ()
    summaries: Sequence[RunSummary] = ()
    runs: Sequence[Run] = ()
    directory: Path | None = None
    head: Reference | None = None
    tuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def tuned(self) -> bool:
        """Whether each method's hyper-parameters were chosen for it."""
        return bool(self.summaries) and all(run.tuned for run in self.summaries)

    @property
    def family(self) -> int:
        """How many tests the p-values are corrected over: ends and speeds of all methods."""
        return sum(len(pair.tests) for pair in self.pairs)

    def seeds_needed(self, pair: Pair) -> int | None:
        """The seeds that would likely decide about a method's end, if its difference is what it seems; None if none.

        Where the split is redrawn with the seed, test sets overlap, and more seeds hardly tell more.
        """
        if pair.difference is None or pair.overlap is not None:
            return None
        return seeds_for_effect(hedges_dz(pair.difference.differences), max(1, self.family))

    def rates(self) -> dict[str, float]:
        """The clients' learning rate of each method that has one rate."""
        found: dict[str, set[float | None]] = {}
        for run in self.summaries:
            found.setdefault(run.method, set()).add(run.rate)
        return {method: rate for method, own in found.items() if len(own) == 1 and (rate := next(iter(own)))}


def compare(runs: Iterable[RunSummary], baseline: str | None = None) -> Comparison:
    """Compare every method of a setting with the baseline, paired by seed.

    >>> gains = (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011)
    >>> runs = [RunSummary("fedavg", seed, values=(0.5,) * 4) for seed in range(10)]
    >>> runs += [RunSummary("fedavg+ecgr", seed, values=(0.5 + gain,) * 4) for seed, gain in enumerate(gains)]
    >>> compare(runs).pairs[0].verdict
    'better'
    """
    runs = one_a_seed(runs)
    baseline = baseline or default_baseline(runs)
    pairs: list[Pair] = []
    references: list[Reference] = []
    for setting, methods in runs_by_setting(runs).items():
        own, beside = _findings(setting, methods, baseline)
        pairs += own
        references += beside
    return Comparison(baseline, tuple(_in_unit(pair) for pair in judge(pairs)), tuple(references), runs)


def one_a_seed(runs: Iterable[RunSummary]) -> tuple[RunSummary, ...]:
    """The runs, with the mean of a seed's clients that trained alone in the place of theirs.

    Clients that are scored on test samples of their own count by how many they have.

    >>> [run.values for run in one_a_seed([RunSummary("alone", 0, (0.25,)), RunSummary("alone", 0, (0.75,))])]
    [(0.5,)]
    """
    groups: dict[tuple[object, ...], list[RunSummary]] = {}
    for place, run in enumerate(runs):
        groups.setdefault((run.setting, run.seed, "") if run.method == "alone" else (place,), []).append(run)
    return tuple(_together(own) if len(own) > 1 else own[0] for own in groups.values())


def _together(runs: Sequence[RunSummary]) -> RunSummary:
    weights = [run.weight for run in runs]
    return replace(
        runs[0],
        values=tuple(mean_or_none(values, weights) for values in zip(*(run.values for run in runs), strict=False)),
        own=tuple(score for run in runs for score in run.own),
        diverged=any(run.diverged for run in runs),
    )


def default_baseline(runs: Sequence[RunSummary]) -> str:
    """``fedavg`` where it is among the runs, and the first run's method where it is not."""
    methods = [run.method for run in runs if run.method not in REFERENCES]
    return BASELINE if BASELINE in methods or not methods else methods[0]


def runs_by_setting(runs: Iterable[RunSummary]) -> dict[str, dict[str, dict[int, RunSummary]]]:
    """For each setting the runs by method and seed."""
    settings: dict[str, dict[str, dict[int, RunSummary]]] = {}
    for run in runs:
        own = settings.setdefault(run.setting, {}).setdefault(run.method, {})
        if run.seed in own:
            raise ConfigError(f"{run.name}: given twice; compare one run of a kind")
        own[run.seed] = run
    for methods in settings.values():
        metrics = {run.metric: run for own in methods.values() for run in own.values()}
        if len(metrics) > 1:
            named = ", ".join(f"{metric.name} ({run.name})" for metric, run in metrics.items())
            raise ConfigError(f"runs of different metrics cannot be compared: {named}")
    return settings


def _findings(setting: str, methods: Mapping[str, BySeed], baseline: str) -> tuple[list[Pair], list[Reference]]:
    """The pairs of one setting, not judged, with larger scores the better ones; and its references."""
    every = [run for own in methods.values() for run in own.values()]
    metric, rounds = every[0].metric, max(run.rounds for run in every)
    whole = {name: {s: run for s, run in own.items() if run.rounds == rounds > 0} for name, own in methods.items()}
    curves = {name: _oriented(own.values(), metric) for name, own in whole.items()}
    failed = {name: [seed for seed, run in own.items() if run.failed] for name, own in whole.items()}
    ends = {name: [run.end for run in own.values() if run.end is not None] for name, own in whole.items()}
    base = curves.get(baseline, {})
    margin = metric.margin(fmean(ends[baseline]) if base else None) or NO_MARGIN
    chance, overlap = every[0].chance, every[0].overlap
    pairs = estimate(
        {name: own for name, own in curves.items() if name not in REFERENCES or name == baseline},
        baseline,
        margin,
        failed=failed,
        pooled=curves.get("pooled") or None,
        constant_rate=all(run.constant_rate for run in every),
        overlap=overlap,
    )
    pairs = [
        replace(
            pair,
            setting=setting,
            metric=metric,
            rounds=rounds,
            at_chance=tuple(name for name in (baseline, pair.method) if at_chance(metric, chance, ends.get(name, ()))),
            sent=mean_or_none([run.sent for run in whole[pair.method].values()]),
            left_out=_left_out(methods, pair.method, baseline, rounds),
        )
        for pair in pairs
    ]
    references = [
        Reference(name, setting, fmean(ends[name]), _turned(end(base, curves[name], overlap), metric), metric, margin)
        for name in REFERENCES
        if name != baseline and name in curves and paired(base, curves[name])
    ]
    return pairs, references


def _oriented(runs: Iterable[RunSummary], metric: Quantity) -> Curves:
    return {
        run.seed: [metric.gain(value) for value in run.values if value is not None] for run in runs if not run.failed
    }


def _left_out(methods: Mapping[str, BySeed], method: str, baseline: str, rounds: int) -> dict[int, str]:
    found = {}
    for seed in sorted({*methods.get(baseline, {}), *methods[method]}):
        reasons = [
            f"no run of {name}" if run is None else f"{name} has {run.rounds} of {rounds} rounds"
            for name in (baseline, method)
            if (run := methods.get(name, {}).get(seed)) is None or run.rounds < rounds or rounds == 0
        ]
        if reasons:
            found[seed] = " and ".join(reasons)
    return found


def _in_unit(pair: Pair) -> Pair:
    """In the metric's own unit and direction; of what learned nothing, nothing is said to be so."""
    untrained = len(pair.at_chance) > 1 or (pair.at_chance and pair.verdict == "equal")
    if untrained and pair.verdict != "diverged":
        pair = replace(pair, verdict="inconclusive", sooner=None)
    metric = pair.metric
    if metric.larger_is_better or pair.difference is None or pair.speed is None:
        return pair
    return replace(
        pair,
        difference=_turned(pair.difference, metric),
        speed=replace(pair.speed, target=metric.gain(pair.speed.target)),
        score=None if pair.score is None else metric.gain(pair.score),
        baseline_score=None if pair.baseline_score is None else metric.gain(pair.baseline_score),
    )


def _turned(found: Estimate, metric: Quantity) -> Estimate:
    """An estimate in the metric's direction."""
    if metric.larger_is_better:
        return found
    interval = None if found.interval is None else (-found.interval[1], -found.interval[0])
    return replace(found, differences=tuple(-gain for gain in found.differences), mean=-found.mean, interval=interval)
