"""Paired comparison of finished runs: each regulator against the baseline, seed by seed.

The verdict rests on the primary metric alone, whose p-values are corrected over every pair of the comparison.
The other metrics have families of their own and get no verdict: they describe, they do not decide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from ecgr.analysis.metrics import METRICS, PRIMARY, Metric, RunSummary, target_accuracy
from ecgr.analysis.statistics import (
    equivalence_p,
    hedges_dz,
    holm,
    paired_t_interval,
    pairs_needed,
    sign_flip_floor,
    sign_flip_p,
)
from ecgr.errors import ConfigError

LEVEL = 0.95
ALPHA = 0.05
POWER = 0.8
MARGIN = 0.005
"""Half a point of accuracy: a smaller difference is of no practical interest."""
HEADLINE_PAIRS = 10
"""With fewer pairs a comparison is exploratory."""

Verdict = Literal["better", "worse", "equivalent", "no difference shown"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One metric of one pair: regulated minus baseline, in the metric's unit.

    ``differences`` is aligned with the seeds; None where a run does not have the metric, as when it never
    reached the target. A single None withholds the summary: the mean of the others would flatter. With one
    pair there is a mean but no interval and no p-value; below three pairs there is no effect size.
    """

    differences: tuple[float | None, ...] = ()
    baseline_mean: float | None = None
    regulated_mean: float | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    dz: float | None = None
    p_equivalent: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)


@dataclass(frozen=True, slots=True)
class Pair:
    """One regulator against the baseline, under one algorithm and setting."""

    setting: str
    algorithm: str
    regulator: str
    baseline: str
    seeds: tuple[int, ...]
    left_out: Mapping[int, str]
    target: float | None
    estimates: Mapping[str, Estimate]
    seeds_needed: int | None = None
    verdict: Verdict = "no difference shown"
    note: str = ""

    @property
    def primary(self) -> Estimate:
        """The estimate that decides."""
        return self.estimates[PRIMARY]

    @property
    def exploratory(self) -> bool:
        """Whether there are too few seeds for a headline."""
        return len(self.seeds) < HEADLINE_PAIRS


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs, in the order in which their runs were first seen; ``family`` counts the primary tests."""

    baseline: str
    family: int
    pairs: tuple[Pair, ...]


Arm = Mapping[int, RunSummary]


def compare(runs: Iterable[RunSummary], baseline: str = "none") -> Comparison:
    """Compare every regulator with the baseline of the same setting and algorithm, paired by seed.

    >>> def run(regulator, seed, gain):
    ...     return RunSummary("fedavg", regulator, seed, accuracy=(0.5 + seed / 100 + gain,))
    >>> gains = (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011)
    >>> runs = [run("none", s, 0.0) for s in range(10)] + [run("ecgr", s, g) for s, g in enumerate(gains)]
    >>> compare(runs).pairs[0].verdict
    'better'
    """
    pairs = [
        _matched(arms, regulator, baseline) for arms in _grouped(runs) for regulator in arms if regulator != baseline
    ]
    family = sum(pair.primary.p is not None for pair in pairs)
    return Comparison(baseline, family, tuple(_judged(pair, family) for pair in _corrected(pairs)))


def _grouped(runs: Iterable[RunSummary]) -> list[dict[str, dict[int, RunSummary]]]:
    """For each setting and algorithm the runs by regulator and seed."""
    groups: dict[tuple[str, str], dict[str, dict[int, RunSummary]]] = {}
    for run in runs:
        arm = groups.setdefault((run.setting, run.algorithm), {}).setdefault(run.regulator, {})
        if run.seed in arm:
            raise ConfigError(f"{run.name}: given twice; compare one run of a kind")
        arm[run.seed] = run
    return list(groups.values())


def _matched(arms: Mapping[str, Arm], regulator: str, baseline: str) -> Pair:
    """Pair by seed the runs that are finished on both sides; finished is who has as many rounds as any."""
    base, other = arms.get(baseline, {}), arms[regulator]
    rounds = max(run.rounds for arm in arms.values() for run in arm.values())
    absent = {
        seed: [*_absence(base, seed, baseline, rounds), *_absence(other, seed, regulator, rounds)]
        for seed in sorted({*base, *other})
    }
    seeds = tuple(seed for seed, reasons in absent.items() if not reasons)
    finished = [run for run in base.values() if run.rounds == rounds > 0]
    target = target_accuracy(finished) if finished else None
    left, right = [base[seed] for seed in seeds], [other[seed] for seed in seeds]
    first = next(iter(other.values()))
    return Pair(
        setting=first.setting,
        algorithm=first.algorithm,
        regulator=regulator,
        baseline=baseline,
        seeds=seeds,
        left_out={seed: " and ".join(reasons) for seed, reasons in absent.items() if reasons},
        target=target,
        estimates={name: _estimate(left, right, metric, target) for name, metric in METRICS.items()},
    )


def _absence(arm: Arm, seed: int, regulator: str, rounds: int) -> list[str]:
    if seed not in arm:
        return [f"no run of {regulator}"]
    if arm[seed].rounds < rounds or rounds == 0:
        return [f"{regulator} has {arm[seed].rounds} of {rounds} rounds"]
    return []


def _estimate(
    base: Sequence[RunSummary], other: Sequence[RunSummary], metric: Metric, target: float | None
) -> Estimate:
    measured = [(metric.measure(b, target), metric.measure(o, target)) for b, o in zip(base, other, strict=True)]
    known = [(before, after) for before, after in measured if before is not None and after is not None]
    if not known or len(known) < len(measured):
        return Estimate(tuple(None if b is None or a is None else a - b for b, a in measured))
    differences = tuple(after - before for before, after in known)
    estimate = Estimate(
        differences,
        baseline_mean=fmean(before for before, _ in known),
        regulated_mean=fmean(after for _, after in known),
        mean=fmean(differences),
        dz=hedges_dz(differences),
    )
    if len(differences) < 2:
        return estimate
    return replace(
        estimate,
        interval=paired_t_interval(differences, LEVEL),
        p=sign_flip_p(differences),
        p_equivalent=equivalence_p(differences, MARGIN) if metric.unit == "share" else None,
    )


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """Correct each metric's p-values over all pairs that have one."""
    estimates = [dict(pair.estimates) for pair in pairs]
    for name in METRICS:
        tested = [(own, p) for own in estimates if (p := own[name].p) is not None]
        for (own, _), p_holm in zip(tested, holm([p for _, p in tested]), strict=True):
            own[name] = replace(own[name], p_holm=p_holm)
    return [replace(pair, estimates=own) for pair, own in zip(pairs, estimates, strict=True)]


def _judged(pair: Pair, family: int) -> Pair:
    verdict = judge(pair.primary)
    remarks = [*_remarks(pair.primary, verdict, len(pair.seeds), family), *_omissions(pair.left_out)]
    return replace(pair, verdict=verdict, note="; ".join(remarks), seeds_needed=_seeds_needed(pair.primary.dz, family))


def judge(estimate: Estimate) -> Verdict:
    """Better or worse if the interval excludes zero and the corrected p is below 0.05; or equivalent.

    >>> judge(Estimate(mean=0.02, interval=(0.01, 0.03), p_holm=0.01))
    'better'
    >>> judge(Estimate(mean=0.02, interval=(0.01, 0.03), p_holm=0.0625))
    'no difference shown'
    """
    if estimate.mean is not None and estimate.excludes_zero and _below_alpha(estimate.p_holm):
        return "better" if estimate.mean > 0 else "worse"
    return "equivalent" if _below_alpha(estimate.p_equivalent) else "no difference shown"


def _remarks(estimate: Estimate, verdict: Verdict, pairs: int, family: int) -> Iterator[str]:
    """What a reader of the verdict should also know."""
    if pairs < 2:
        yield "one pair tells nothing about chance" if pairs else "no seed has a finished run on both sides"
        return
    if verdict in ("better", "worse"):
        if _below_alpha(estimate.p_equivalent):
            yield f"smaller than {100 * MARGIN:g} points"
    elif estimate.excludes_zero and (floor := sign_flip_floor(pairs)) >= ALPHA:
        reason = f"{pairs} seeds cannot reach p < {ALPHA} (smallest possible {floor:g})"
        yield f"the interval excludes zero, but {reason}"
    elif estimate.excludes_zero:
        reason = f"p = {estimate.p_holm:.3g} after Holm over {family} {'pairs' if family > 1 else 'pair'}"
        yield f"the interval excludes zero, but {reason}"
    elif _below_alpha(estimate.p_holm):
        yield f"p = {estimate.p_holm:.3g} after Holm, but the interval includes zero"
    if pairs < HEADLINE_PAIRS:
        yield f"exploratory: fewer than {HEADLINE_PAIRS} seeds"


def _omissions(left_out: Mapping[int, str]) -> list[str]:
    """Say once for each reason which seeds are missing.

    >>> _omissions({3: "no run of ecgr", 5: "no run of ecgr"})
    ['seeds 3, 5 left out (no run of ecgr)']
    """
    seeds: dict[str, list[int]] = {}
    for seed, reason in left_out.items():
        seeds.setdefault(reason, []).append(seed)
    return [
        f"{'seeds' if len(which) > 1 else 'seed'} {', '.join(map(str, which))} left out ({reason})"
        for reason, which in seeds.items()
    ]


def _seeds_needed(dz: float | None, family: int) -> int | None:
    """Seeds for a verdict with 80 % power at this effect, after the correction over the family.

    Planned at the level that Holm asks of the smallest p-value; the sign-flip test must be able to reach it.
    """
    alpha = ALPHA / max(1, family)
    if dz is None or (pairs := pairs_needed(dz, POWER, alpha)) is None:
        return None
    while sign_flip_floor(pairs) >= alpha:
        pairs += 1
    return pairs


def _below_alpha(p: float | None) -> bool:
    return p is not None and p < ALPHA
