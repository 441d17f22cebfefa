"""What learning curves say of two methods: who ends higher, who is sooner there, and whether anybody still gains.

A curve is the score by round of one run, larger is better (a loss is given negated). A method is its curves by seed,
all of one length. Everything is paired by seed.

- *End*: the difference of the last scores.
- *Speed*: the target is the mean of the baseline's last scores, less the margin. The factor is the baseline's round of
  arrival over the method's; its mean and interval are taken on the log. Who does not arrive counts as arriving at the
  last round; where that is more than a fifth of the seeds on either side, there is no factor.
- *Levelled off*: the 95 % upper bound, over seeds, of what was gained in the second half of the rounds is below the
  margin.
- *The gap*: what share of the distance from the baseline to a reference a method closes, where there is a distance.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ecgr.analysis.statistics import paired_t_interval, resampled_t, sign_flip_p

LEVEL = 0.95
MISSED = 0.2
"""The share of the seeds that may fail to arrive before there is no factor."""

Curves = Mapping[int, Sequence[float]]
"""Scores by round, by seed."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over paired seeds with its 95 % interval and p-value; no interval and no p below two pairs."""

    differences: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None

    @classmethod
    def of(cls, differences: Sequence[float], overlap: float | None = None) -> "Estimate":
        """The estimate of these paired differences.

        ``overlap`` is the ratio of test to training samples where the split is redrawn with the seed: such splits share
        samples, so the variance of the mean is that of `resampled_t`, and signs cannot be flipped.

        >>> found = Estimate.of([1.0, 2.0, 3.0, 4.0, 5.0])
        >>> found.mean, found.p
        (3.0, 0.0625)
        """
        values = tuple(float(value) for value in differences)
        if len(values) < 2:
            return cls(values, fmean(values))
        if overlap is None:
            return cls(values, fmean(values), paired_t_interval(values, LEVEL), sign_flip_p(values))
        interval, p = resampled_t(values, overlap, LEVEL)
        return cls(values, fmean(values), interval, p)


@dataclass(frozen=True, slots=True)
class Speed:
    """How much sooner a method reaches what the baseline ends with.

    ``log`` is the estimate on the log scale; ``late`` and ``late_baseline`` count the seeds that do not arrive, and
    there is no ``log`` where they are too many. ``rounds`` are mean rounds of arrival: the method's, the baseline's.
    """

    target: float
    log: Estimate | None
    late: int
    late_baseline: int
    rounds: tuple[float, float]

    @property
    def factor(self) -> float | None:
        """The geometric mean of the baseline's rounds over the method's."""
        return None if self.log is None else math.exp(self.log.mean)

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.log is None or self.log.interval is None:
            return None
        return math.exp(self.log.interval[0]), math.exp(self.log.interval[1])


def end(baseline: Curves, method: Curves, overlap: float | None = None) -> Estimate:
    """The difference of the last scores.

    >>> end({0: [0.1, 0.5], 1: [0.2, 0.6]}, {0: [0.3, 0.75], 1: [0.3, 0.75]}).differences
    (0.25, 0.15000000000000002)
    """
    return Estimate.of([method[seed][-1] - baseline[seed][-1] for seed in paired(baseline, method)], overlap)


def target_of(baseline: Curves, margin: float) -> float:
    """What counts as being there: the mean of the baseline's last scores, less the margin."""
    return fmean(curve[-1] for curve in baseline.values()) - margin


def arrival(curve: Sequence[float], target: float) -> int | None:
    """The first round, counted from one, that is at the target or above; None if there is none.

    >>> arrival([0.1, 0.6, 0.5], 0.5), arrival([0.1, 0.2], 0.5)
    (2, None)
    """
    return next((number for number, score in enumerate(curve, 1) if score >= target), None)


def speed(baseline: Curves, method: Curves, margin: float, overlap: float | None = None) -> Speed:
    """How much sooner the method is where the baseline ends.

    >>> slow, fast = [r / 20 for r in range(1, 21)], [min(1.0, r / 10) for r in range(1, 21)]
    >>> found = speed({0: slow, 1: slow}, {0: fast, 1: fast}, margin=0.0)
    >>> found.factor, found.late
    (2.0, 0)
    """
    seeds, target = paired(baseline, method), target_of(baseline, margin)
    last = len(baseline[seeds[0]])
    before, after = ([arrival(curves[seed], target) for seed in seeds] for curves in (baseline, method))
    late_baseline, late = before.count(None), after.count(None)
    rounds = [(b or last, a or last) for b, a in zip(before, after, strict=True)]
    log = None
    if max(late, late_baseline) <= MISSED * len(seeds):
        log = Estimate.of([math.log(b / a) for b, a in rounds], overlap)
    return Speed(target, log, late, late_baseline, (fmean(a for _, a in rounds), fmean(b for b, _ in rounds)))


def rising(curves: Curves, margin: float) -> bool:
    """Whether the second half of the rounds gained more than the margin in the mean.

    >>> rising({0: [0.1, 0.5, 0.9], 1: [0.1, 0.4, 0.9]}, 0.005), rising({0: [0.1, 0.9, 0.9]}, 0.005)
    (True, False)
    """
    return fmean(_gains(curves)) > margin


def levelled_off(curves: Curves, margin: float) -> bool:
    """Whether the 95 % upper bound of the gain of the second half of the rounds is below the margin.

    With one seed there is no bound, and with one round no second half: not levelled off.

    >>> flat = [0.1] * 10 + [0.9] * 30
    >>> levelled_off({0: flat, 1: flat}, 0.005), levelled_off({0: [0.1, 0.5, 0.9], 1: [0.1, 0.4, 0.9]}, 0.005)
    (True, False)
    """
    if len(curves) < 2 or any(len(curve) < 2 for curve in curves.values()):
        return False
    return paired_t_interval(_gains(curves), 2 * LEVEL - 1)[1] < margin  # one-sided


def _gains(curves: Curves) -> list[float]:
    """What each seed gained in the second half of its rounds."""
    return [curve[-1] - curve[(len(curve) + 1) // 2 - 1] for curve in curves.values()]


def gap_closed(
    baseline: Curves, method: Curves, reference: Curves, margin: float, overlap: float | None = None
) -> float | None:
    """The share of the baseline's distance to the reference that the method closes, by the means of the last scores.

    None where the distance's lower bound does not exceed the margin: a share of nothing means nothing.

    >>> gap_closed({0: [0.5], 1: [0.52]}, {0: [0.7], 1: [0.72]}, {0: [0.9], 1: [0.92]}, margin=0.01)
    0.5
    """
    distance = end(baseline, reference, overlap)
    if distance.interval is None or distance.interval[0] <= margin:
        return None
    return round(end(baseline, method).mean / distance.mean, 12)


def paired(*methods: Curves) -> list[int]:
    """The seeds that all have."""
    return sorted(set(methods[0]).intersection(*methods[1:]))
