"""What a comparison found: each method against the baseline, its end, its speed, and one word for both.

The words, in order: *diverged*; *too few seeds*, where no outcome could have been shown; *better* and *worse*, where a
difference of the end was shown and both have levelled off; *ahead* and *behind*, where one of them has not; *equal*,
within the margin, where both have levelled off; else *inconclusive*. A difference is shown where its 95 % interval
excludes zero and its p-value, corrected by Holm over all methods' ends and speeds together, is below 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from ecgr.analysis.curves import Curves, Estimate, Speed, end, gap_closed, levelled_off, paired, rising, speed
from ecgr.analysis.power import ALPHA, LEAST_RESAMPLED
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.analysis.statistics import equivalence_p, holm, sign_flip_floor

Verdict = Literal["better", "worse", "equal", "ahead", "behind", "inconclusive", "too few seeds", "diverged"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One method against the baseline.

    ``score`` and ``baseline_score`` are means of the last round over the paired seeds; ``sooner`` says whether a factor
    of speed was shown, and which way; ``levelled_off`` whether both have, and ``rising`` who gained more than the
    margin in the second half of the rounds; ``gap_closed`` is the share of the distance to ``pooled``; ``failed`` are
    the seeds on which the method diverged, ``failed_baseline`` those on which the baseline did; ``at_chance`` names who
    does no better than a constant guess; ``sent`` is how many bytes a round of the method takes; ``left_out`` says of a
    seed why it was not paired.
    """

    method: str
    baseline: str
    seeds: tuple[int, ...]
    verdict: Verdict
    difference: Estimate | None = None
    speed: Speed | None = None
    sooner: Literal["sooner", "later"] | None = None
    levelled_off: bool = False
    rising: tuple[str, ...] = ()
    score: float | None = None
    baseline_score: float | None = None
    gap_closed: float | None = None
    failed: tuple[int, ...] = ()
    failed_baseline: tuple[int, ...] = ()
    margin: float = 0.0
    rounds: int = 0
    constant_rate: bool = True
    overlap: float | None = None
    setting: str = ""
    metric: Quantity = ACCURACY
    at_chance: tuple[str, ...] = ()
    sent: float | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def by_seed(self) -> dict[int, float]:
        """The difference of each seed; empty where there is none."""
        return {} if self.difference is None else dict(zip(self.seeds, self.difference.differences, strict=True))

    @property
    def tests(self) -> dict[str, Estimate]:
        """What of it is tested: its end, its speed."""
        own = {"end": self.difference, "speed": self.speed.log if self.speed else None}
        return {what: found for what, found in own.items() if found is not None and found.p is not None}

    @property
    def small(self) -> bool:
        """Whether the whole interval of the difference lies within the margin."""
        interval = None if self.difference is None else self.difference.interval
        return interval is not None and max(map(abs, interval)) < self.margin

    @property
    def identical(self) -> bool:
        """Whether both ended the same in every seed, to the bit."""
        return self.difference is not None and not any(self.difference.differences)


def estimate(
    methods: Mapping[str, Curves],
    baseline: str,
    margin: float,
    *,
    failed: Mapping[str, Sequence[int]] | None = None,
    pooled: Curves | None = None,
    constant_rate: bool = True,
    overlap: float | None = None,
) -> list[Pair]:
    """Every method against the baseline; `judge` gives the verdicts.

    Args:
        methods: curves by method; a method that diverged on every seed has none.
        baseline: the method that the others are compared with.
        margin: what counts as no difference, in the metric's unit.
        failed: seeds on which a method diverged; such a method has no end to compare.
        pooled: the reference's curves, for the gap.
        constant_rate: whether the learning rate is; under a decaying one curves level off by starving, which says
            nothing about more rounds.
        overlap: the ratio of test to training samples where splits are redrawn with the seed.
    """
    lost = {name: tuple(seeds) for name, seeds in (failed or {}).items() if seeds}
    base = methods.get(baseline, {})
    level = {name: constant_rate and levelled_off(curves, margin) for name, curves in methods.items() if curves}
    pairs = []
    for name, curves in methods.items():
        if name == baseline:
            continue
        seeds = tuple(paired(base, curves))
        pair = Pair(name, baseline, seeds, "inconclusive", margin=margin, constant_rate=constant_rate, overlap=overlap)
        if name in lost:
            pair = replace(pair, verdict="diverged", failed=lost[name])
        elif baseline in lost:
            pair = replace(pair, failed_baseline=lost[baseline])
        elif not seeds:
            pair = replace(pair, verdict="too few seeds")
        else:
            own, other = {seed: curves[seed] for seed in seeds}, {seed: base[seed] for seed in seeds}
            pair = replace(
                pair,
                difference=end(other, own, overlap),
                speed=speed(other, own, margin, overlap),
                levelled_off=level[name] and level[baseline],
                rising=tuple(who for who in (baseline, name) if rising(methods[who], margin)),
                score=fmean(curve[-1] for curve in own.values()),
                baseline_score=fmean(curve[-1] for curve in other.values()),
                gap_closed=None if pooled is None else gap_closed(other, own, pooled, margin, overlap),
            )
        pairs.append(pair)
    return pairs


def judge(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with their p-values corrected over all ends and speeds, and with their verdicts.

    >>> slow = {s: [s / 1000 + r / 100 for r in range(1, 21)] for s in range(10)}
    >>> ahead = {s: [score + 0.05 + 0.001 * s for score in curve] for s, curve in slow.items()}
    >>> pairs = estimate({"slow": slow, "ahead": ahead}, "slow", margin=0.005)
    >>> [(pair.method, pair.verdict, pair.sooner) for pair in judge(pairs)]
    [('ahead', 'ahead', 'sooner')]
    """
    p = {(place, what): own.p or 0.0 for place, pair in enumerate(pairs) for what, own in pair.tests.items()}
    corrected, judged = _holm(p), []
    for place, pair in enumerate(pairs):
        difference, speed, end, floor = pair.difference, pair.speed, (place, "end"), 1.0
        if end in p:
            least = sign_flip_floor(len(pair.seeds)) if pair.overlap is None else 0.0
            floor = _holm({**p, end: min(least, p[end])})[end]
        if difference is not None:
            difference = replace(difference, p_holm=corrected.get(end))
        if speed is not None and speed.log is not None:
            speed = replace(speed, log=replace(speed.log, p_holm=corrected.get((place, "speed"))))
        judged.append(_judge(replace(pair, difference=difference, speed=speed), floor))
    return judged


def _holm(p: Mapping[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    return dict(zip(p, holm(list(p.values())), strict=True))


def _judge(pair: Pair, floor: float) -> Pair:
    """``floor`` is the least that the end's corrected p-value could have been."""
    difference, speed = pair.difference, pair.speed
    if difference is None or speed is None:
        return pair
    if difference.p is None or floor >= ALPHA or (pair.overlap is not None and len(pair.seeds) < LEAST_RESAMPLED):
        return replace(pair, verdict="too few seeds")
    if speed.log is not None and shown(speed.log):
        pair = replace(pair, sooner="sooner" if speed.log.mean > 0 else "later")
    if shown(difference):
        words: tuple[Verdict, Verdict] = ("better", "worse") if pair.levelled_off else ("ahead", "behind")
        return replace(pair, verdict=words[0] if difference.mean > 0 else words[1])
    if pair.levelled_off and equivalence_p(difference.differences, pair.margin, pair.overlap or 0.0) < ALPHA:
        return replace(pair, verdict="equal")
    return pair


def shown(estimate: Estimate) -> bool:
    """Whether a difference was shown: by its interval, and by its corrected p-value."""
    if estimate.interval is None or estimate.p_holm is None:
        return False
    low, high = estimate.interval
    return (low > 0 or high < 0) and estimate.p_holm < ALPHA
