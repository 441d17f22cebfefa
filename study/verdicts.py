"""How a verdict comes about, by rules fixed here and not by hand, and how differences are written."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ecgr.analysis.comparison import Estimate, Pair, judge
from ecgr.analysis.metrics import PRIMARY
from ecgr.analysis.quantities import ACCURACY

CLAIMED_GAIN = 0.01
"""The paper: approximately one to two points; its lower end, taken at its word."""
OFTEN, SELDOM = 0.95, 0.5
"""Shares from which something that the paper takes for granted counts as shown, and below which as contradicted."""

RULES = (
    "*better*, *worse* and *equivalent* are verdicts of `ecgr compare`: the interval lies on one side of zero and the p"
    " of its family is below 0.05, or the difference is within half a point.",
    "A gain of 1 to 2 points: shown if better (that there is a gain; its size is in the interval, which seldom begins"
    " at a point); contradicted if worse, or if the interval ends below"
    f" +{100 * CLAIMED_GAIN:g} (that interval is not corrected for the number of pairs, so this is the easier side).",
    "A gain or a loss of no stated size: shown if better (worse); contradicted if worse (better) or equivalent.",
    "No gain: contradicted if better; shown if the interval ends below +1. Agreement: shown if the interval lies within"
    " ±1 point, contradicted if it lies outside.",
    f"Something that is taken for granted: shown if it held in {100 * OFTEN:g} % of updates or more, contradicted if in"
    f" less than {100 * SELDOM:g} %.",
    "The choice of steps: shown if ECGR is better than plain training and each other half worse than ECGR, contradicted"
    " if one is equivalent to ECGR or better. Direction: a gain of 1 to 2 points that is there with the plain step's"
    " length too; not shown where ECGR's own interval includes zero, as there is no gain to explain.",
    "Where kept steps lie: shown if in more than half of the rounds beyond the middle 95 % of random choices (for a"
    " random choice, within), contradicted if not; not shown where it matters whether each step or each client counts"
    " once.",
    "Everything else is not shown: the runs do not decide.",
)
"""For the page."""

Verdict = Literal["shown", "not shown", "contradicted", "not measured"]
Sweep = Literal["main", "controls", "ablations", "steps", "collapse", "full", "lemma", "lc25000"]
Judge = Callable[[Estimate], Verdict]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the table."""

    says: str
    measured: str
    verdict: str
    sweep: Sweep


@dataclass(frozen=True, slots=True)
class Measurement:
    """Something that the paper does not claim: measured, not judged."""

    what: str
    measured: str
    sweep: Sweep


def gains_a_point(found: Estimate) -> Verdict:
    """A gain of the size that the paper claims."""
    if judge(found) == "better":
        return "shown"
    if judge(found) == "worse" or (found.interval is not None and found.interval[1] < CLAIMED_GAIN):
        return "contradicted"
    return "not shown"


def gains(found: Estimate) -> Verdict:
    """A gain of any size."""
    return _decide(found, {"better": "shown", "worse": "contradicted", "equivalent": "contradicted"})


def loses(found: Estimate) -> Verdict:
    """A loss of any size."""
    return _decide(found, {"worse": "shown", "better": "contradicted", "equivalent": "contradicted"})


def gains_nothing(found: Estimate) -> Verdict:
    """No gain worth the name."""
    if judge(found) == "better":
        return "contradicted"
    return "shown" if found.interval is not None and found.interval[1] < CLAIMED_GAIN else "not shown"


def agrees(found: Estimate) -> Verdict:
    """No difference of the size claimed elsewhere, to either side."""
    if found.interval is None:
        return "not shown"
    low, high = found.interval
    if low > -CLAIMED_GAIN and high < CLAIMED_GAIN:
        return "shown"
    return "contradicted" if low >= CLAIMED_GAIN or high <= -CLAIMED_GAIN else "not shown"


def holds(share: float | None) -> Verdict:
    """Something that is taken for granted."""
    if share is None:
        return "not measured"
    return "shown" if share >= OFTEN else "contradicted" if share < SELDOM else "not shown"


def _decide(found: Estimate, verdicts: Mapping[str, Verdict]) -> Verdict:
    return verdicts.get(judge(found), "not shown")


def gain(pair: Pair, metric: str = PRIMARY) -> str:
    """A pair's difference in points with its interval and seeds."""
    found = pair.estimates[metric]
    if found.mean is None:
        return "not comparable"
    if found.interval is None:
        return f"{ACCURACY.change(found.mean)} (one seed: no interval)"
    low, high = found.interval
    return f"{ACCURACY.change(found.mean)} ({ACCURACY.change(low)} to {ACCURACY.change(high)}; {len(pair.seeds)} seeds)"


def percent(value: float | None) -> str:
    """A share as per cent.

    >>> percent(0.5), percent(None)
    ('50 %', 'none')
    """
    return "none" if value is None else f"{100 * value:.0f} %"


def combine(verdicts: Sequence[str]) -> str:
    """One verdict for several settings; where they differ, how many each.

    >>> combine(["shown", "shown"]), combine(["shown", "not shown", "not shown"])
    ('shown', 'not shown 2, shown 1')
    """
    counts = Counter(verdicts)
    if len(counts) == 1:
        return verdicts[0]
    return ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items(), key=lambda item: -item[1]))
