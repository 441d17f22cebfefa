"""Who is compared with whom, seed by seed, and what the differences say: estimates, without a verdict."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from ecgr.analysis.metrics import LAST, METRICS, PRIMARY, Metric, RunSummary, last5, target_value
from ecgr.analysis.quantities import ACCURACY, Quantity, at_chance
from ecgr.analysis.statistics import equivalence_p, hedges_dz, holm, paired_t_interval, sign_flip_floor, sign_flip_p
from ecgr.errors import ConfigError

LEVEL = 0.95
HEADLINE_PAIRS = 10
"""With fewer pairs a comparison is exploratory."""

By = Literal["regulator", "method"]
"""What is compared: regulators within an algorithm, or whole methods with one baseline for all."""
Verdict = Literal["better", "worse", "equivalent", "not decided", "too few seeds", "not trained yet", "diverged"]
Cause = Literal["direction", "step length", "both"]


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
    regulated_mean: float | None = None
    mean: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    dz: float | None = None
    p_equivalent: float | None = None
    p_least: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.interval is not None and (self.interval[0] > 0 or self.interval[1] < 0)

    @property
    def has_spread(self) -> bool:
        """Whether the differences differ."""
        return self.interval is not None and self.interval[0] < self.interval[1]

    @property
    def identical(self) -> bool:
        """Whether both sides are the same in every seed, to the bit."""
        return bool(self.differences) and all(difference == 0 for difference in self.differences)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a difference, by seed, with its mean and interval (which shares its 5 % with the other part)."""

    differences: tuple[float, ...]
    mean: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Split:
    """A pair's difference as what its path length brings, and the rest: direction.

    ``path`` and ``baseline_path`` are mean path lengths over seeds; there are no parts where no length curve was
    measured, or it does not reach so far: ``outside`` says by what factors paths fall short of it and go beyond it,
    and ``between`` at which step length it needs a further point.
    ``reason`` says why there are no parts or why they name no cause; empty otherwise.
    """

    path: float | None
    baseline_path: float | None
    direction: Part | None = None
    length: Part | None = None
    reason: str = ""
    outside: tuple[float, float] = (1.0, 1.0)
    between: float | None = None

    @property
    def ratio(self) -> float | None:
        """The method's path in units of the baseline's."""
        return self.path / self.baseline_path if self.path is not None and self.baseline_path else None


@dataclass(frozen=True, slots=True)
class Pair:
    """One method against its baseline, under one setting.

    ``algorithm`` and ``regulator`` are those of the method; ``baseline`` is what was asked for as such (a regulator,
    or a method); ``method`` and ``baseline_method`` name both sides in full. ``remarks`` are what a reader of the
    verdict should also know; ``margin`` is what counts as no difference; ``chance`` what a constant guess reaches, and
    ``at_chance`` names the methods that do no better; ``diverged`` names those with a run that has no finite end;
    ``rising`` names the methods whose curves still get better at the end; ``rounds`` is how many each run has, of which
    the last five decide; ``split`` is what is behind ``cause``; ``tuned`` is what was chosen for the method and for the
    baseline, where that differs.
    """

    setting: str
    algorithm: str
    regulator: str
    baseline: str
    seeds: tuple[int, ...]
    left_out: Mapping[int, str]
    target: float | None
    estimates: Mapping[str, Estimate]
    seeds_needed: int | None = None
    verdict: Verdict = "not decided"
    remarks: tuple[str, ...] = ()
    method: str = ""
    baseline_method: str = ""
    metric: Quantity = ACCURACY
    rounds: int = LAST
    margin: float | None = None
    chance: float | None = None
    at_chance: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    rising: tuple[str, ...] = ()
    cause: Cause | None = None
    split: Split | None = None
    family: int = 1
    tuned: tuple[str, str] | None = None

    @property
    def causes(self) -> tuple[str, ...]:
        """The parts of the difference that were shown, in words.

        What is not length is direction only where both sides were trained alike: a local learning rate of its own may
        be what helps a method, too.
        """
        direction = "direction or tuning" if self.tuned else "direction"
        shown = {"direction": (direction,), "step length": ("step length",), "both": (direction, "step length")}
        return shown[self.cause] if self.cause else ()

    @property
    def primary(self) -> Estimate:
        """The estimate that decides."""
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


Arm = Mapping[int, RunSummary]


def group_of(run: RunSummary, by: By) -> tuple[str, str]:
    """Setting and algorithm within which runs are compared; no algorithm where whole methods are."""
    return (run.setting, run.algorithm if by == "regulator" else "")


def name_of(run: RunSummary, by: By) -> str:
    """What a run is called within its group."""
    return run.regulator if by == "regulator" else run.method


def runs_by_group(runs: Iterable[RunSummary], by: By) -> dict[tuple[str, str], dict[str, dict[int, RunSummary]]]:
    """For each group the runs by name and seed."""
    groups: dict[tuple[str, str], dict[str, dict[int, RunSummary]]] = {}
    for run in runs:
        arm = groups.setdefault(group_of(run, by), {}).setdefault(name_of(run, by), {})
        if run.seed in arm:
            raise ConfigError(f"{run.name}: given twice; compare one run of a kind")
        arm[run.seed] = run
    for arms in groups.values():
        metrics = {run.metric: run for arm in arms.values() for run in arm.values()}
        if len(metrics) > 1:
            named = ", ".join(f"{metric.name} ({run.name})" for metric, run in metrics.items())
            raise ConfigError(f"runs of different metrics cannot be compared: {named}")
    return groups


def match(arms: Mapping[str, Arm], name: str, baseline: str) -> Pair:
    """Pair by seed the runs that are finished on both sides; finished is who has as many rounds as any."""
    base, other = arms.get(baseline, {}), arms[name]
    rounds = max(run.rounds for arm in arms.values() for run in arm.values())
    absent = {
        seed: [*_absence(base, seed, baseline, rounds), *_absence(other, seed, name, rounds)]
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
        algorithm=first.algorithm,
        regulator=first.regulator,
        baseline=baseline,
        seeds=seeds,
        left_out={seed: " and ".join(reasons) for seed, reasons in absent.items() if reasons},
        target=target,
        estimates={key: _estimate(left, right, measure, target, margin) for key, measure in METRICS.items()},
        method=first.method,
        baseline_method=next((run.method for run in base.values()), baseline),
        metric=metric,
        rounds=rounds,
        margin=margin,
        chance=first.chance,
        at_chance=tuple(side[0].method for side in (left, right) if at_chance(metric, first.chance, _ends(side))),
        diverged=tuple(side[0].method for side in (left, right) if len(_ends(side)) < len(side)),
        rising=tuple(side[0].method for side in (left, right) if side and still_rising(side, margin)),
        tuned=(right[0].tuned, left[0].tuned) if seeds and right[0].tuned != left[0].tuned else None,
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


def still_rising(runs: Sequence[RunSummary], margin: float | None) -> bool:
    """Whether curves still get better at the end: the last fifth of the rounds is beyond the fifth before it.

    By more than the margin of equivalence, and by more than three standard errors over the seeds.

    >>> curve = [RunSummary("fedavg", "none", seed, tuple(r / 20 for r in range(20))) for seed in (0, 1)]
    >>> still_rising(curve, 0.005), still_rising([RunSummary("fedavg", "none", 0, (0.1, 0.9) + (0.9,) * 18)], 0.005)
    (True, False)
    """
    fifth = max(1, min(runs[0].rounds // 2, max(2, runs[0].rounds // 5)))
    gains = []
    for run in runs:
        end, before = run.values[-fifth:], run.values[-2 * fifth : -fifth]
        if not before or None in end or None in before:
            return False
        gains.append(run.metric.gain(_mean(end) - _mean(before)))
    mean = fmean(gains)
    error = (sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains)) ** 0.5 if len(gains) > 1 else 0
    return mean > max(3 * error, margin or 0.0)


def _mean(values: Sequence[float | None]) -> float:
    return fmean(value for value in values if value is not None)


def _ends(runs: Sequence[RunSummary]) -> list[float]:
    return [end for run in runs if (end := last5(run)) is not None]


def _mean_end(runs: Sequence[RunSummary]) -> float | None:
    ends = _ends(runs)
    return fmean(ends) if ends else None


def _absence(arm: Arm, seed: int, name: str, rounds: int) -> list[str]:
    if seed not in arm:
        return [f"no run of {name}"]
    if arm[seed].rounds < rounds or rounds == 0:
        return [f"{name} has {arm[seed].rounds} of {rounds} rounds"]
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
        p_equivalent=equivalence_p(differences, margin) if margin and metric.unit == "metric" else None,
    )
