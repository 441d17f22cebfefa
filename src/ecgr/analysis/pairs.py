"""Who is compared with whom, seed by seed, and what the differences say: estimates, without a verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from ecgr.analysis.quantities import ACCURACY, Quantity, at_chance
from ecgr.analysis.statistics import equivalence_p, hedges_dz, holm, paired_t_interval, sign_flip_floor, sign_flip_p
from ecgr.analysis.summaries import LAST, METRICS, PRIMARY, Metric, RunSummary, last5, still_rising, target_value
from ecgr.errors import ConfigError

LEVEL = 0.95
HEADLINE_PAIRS = 10
"""With fewer pairs a comparison is exploratory."""

Verdict = Literal["better", "worse", "equivalent", "inconclusive", "too few seeds", "not trained yet", "diverged"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric of one pair: method minus baseline, in the metric's unit.

    ``differences`` is aligned with the seeds; None where a run does not have the metric, as when it never
    reached the target. A single None withholds the summary: the mean of the others would flatter. With one
    pair there is a mean but no interval and no p-value; below three pairs there is no effect size. ``p_least`` is
    what ``p_holm`` would be if all differences had the same sign: what this number of seeds can show at most.
    """

    differences: tuple[float | None, ...] = ()
    baseline_mean: float | None = None
    method_mean: float | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    dz: float | None = None
    p_equivalent: float | None = None
    p_least: float | None = None

    @property
    def excludes_zero(self) -> bool:
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)

    @property
    def has_spread(self) -> bool:
        return self.interval is not None and self.interval[0] < self.interval[1]

    @property
    def identical(self) -> bool:
        """Whether both sides are the same in every seed, to the bit."""
        return bool(self.differences) and all(difference == 0 for difference in self.differences)


@dataclass(frozen=True, slots=True)
class Pair:
    """One method against the baseline, under one setting.

    ``remarks`` are what a reader of the verdict should also know; ``margin`` is what counts as no difference;
    ``chance`` what a constant guess reaches, and ``at_chance`` names the methods that do no better; ``diverged`` names
    those with a run that has no finite end; ``rising`` those whose curves still get better at the end; ``rounds`` is
    how many each run has, of which the last five decide.
    """

    setting: str
    method: str
    baseline: str
    seeds: tuple[int, ...]
    left_out: Mapping[int, str]
    target: float | None
    estimates: Mapping[str, Estimate]
    seeds_needed: int | None = None
    verdict: Verdict = "inconclusive"
    remarks: tuple[str, ...] = ()
    metric: Quantity = ACCURACY
    rounds: int = LAST
    margin: float | None = None
    chance: float | None = None
    at_chance: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    rising: tuple[str, ...] = ()
    family: int = 1

    @property
    def primary(self) -> Estimate:
        return self.estimates[PRIMARY]

    @property
    def note(self) -> str:
        """What the verdict's reader should also know."""
        return "; ".join(self.remarks)

    @property
    def exploratory(self) -> bool:
        """Whether there are too few seeds for a headline."""
        return len(self.seeds) < HEADLINE_PAIRS

    @property
    def description(self) -> str:
        """What decides, for people."""
        return METRICS[PRIMARY].describe(self.metric, self.rounds)


BySeed = Mapping[int, RunSummary]


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


def match(methods: Mapping[str, BySeed], method: str, baseline: str) -> Pair:
    """Pair by seed the runs that are finished on both sides; finished is who has as many rounds as any."""
    base, other = methods.get(baseline, {}), methods[method]
    rounds = max(run.rounds for own in methods.values() for run in own.values())
    absent = {
        seed: [*_absence(base, seed, baseline, rounds), *_absence(other, seed, method, rounds)]
        for seed in sorted({*base, *other})
    }
    seeds = tuple(seed for seed, reasons in absent.items() if not reasons)
    finished = [run for run in base.values() if run.rounds == rounds > 0]
    target = target_value(finished) if finished else None
    left, right = [base[seed] for seed in seeds], [other[seed] for seed in seeds]
    first = next(iter(other.values()))
    metric = first.metric
    margin = metric.margin(_mean_end(left))
    return Pair(
        setting=first.setting,
        method=method,
        baseline=baseline,
        seeds=seeds,
        left_out={seed: " and ".join(reasons) for seed, reasons in absent.items() if reasons},
        target=target,
        estimates={key: _estimate(left, right, measure, target, margin) for key, measure in METRICS.items()},
        metric=metric,
        rounds=rounds,
        margin=margin,
        chance=first.chance,
        at_chance=tuple(side[0].method for side in (left, right) if at_chance(metric, first.chance, _ends(side))),
        diverged=tuple(side[0].method for side in (left, right) if len(_ends(side)) < len(side)),
        rising=tuple(side[0].method for side in (left, right) if side and still_rising(side, margin)),
    )


def correct(pairs: Sequence[Pair]) -> list[Pair]:
    """Correct each metric's p-values over all pairs that have one."""
    estimates = [dict(pair.estimates) for pair in pairs]
    for name in METRICS:
        tested = [(own, p) for own in estimates if (p := own[name].p) is not None]
        found = [p for _, p in tested]
        for place, ((own, _), p_holm) in enumerate(zip(tested, holm(found), strict=True)):
            floor = sign_flip_floor(len(own[name].differences))
            least = holm([*found[:place], min(floor, found[place]), *found[place + 1 :]])[place]
            own[name] = replace(own[name], p_holm=p_holm, p_least=least)
    family = sum(pair.primary.p is not None for pair in pairs)
    return [replace(pair, estimates=own, family=family) for pair, own in zip(pairs, estimates, strict=True)]


def _ends(runs: Sequence[RunSummary]) -> list[float]:
    return [end for run in runs if (end := last5(run)) is not None]


def _mean_end(runs: Sequence[RunSummary]) -> float | None:
    ends = _ends(runs)
    return fmean(ends) if ends else None


def _absence(runs: BySeed, seed: int, method: str, rounds: int) -> list[str]:
    if seed not in runs:
        return [f"no run of {method}"]
    if runs[seed].rounds < rounds or rounds == 0:
        return [f"{method} has {runs[seed].rounds} of {rounds} rounds"]
    return []


def _estimate(
    base: Sequence[RunSummary],
    other: Sequence[RunSummary],
    metric: Metric,
    target: float | None,
    margin: float | None,
) -> Estimate:
    def measure(run: RunSummary) -> float | None:  # before it diverged, a run may have been good: that says nothing
        return None if last5(run) is None else metric.measure(run, target)

    measured = [(measure(before), measure(after)) for before, after in zip(base, other, strict=True)]
    known = [(before, after) for before, after in measured if before is not None and after is not None]
    if not known or len(known) < len(measured):
        return Estimate(tuple(None if b is None or a is None else a - b for b, a in measured))
    differences = tuple(after - before for before, after in known)
    estimate = Estimate(
        differences,
        baseline_mean=fmean(before for before, _ in known),
        method_mean=fmean(after for _, after in known),
        mean=fmean(differences),
        dz=hedges_dz(differences),
    )
    if len(differences) < 2:
        return estimate
    return replace(
        estimate,
        interval=paired_t_interval(differences, LEVEL),
        p=sign_flip_p(differences),
        p_equivalent=equivalence_p(differences, margin) if margin and metric.unit == "metric" else None,
    )
