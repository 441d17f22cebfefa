"""How a verdict comes about, by rules fixed here and not by hand, and how differences are written.

A gain is *shown* if the comparison's verdict is "better" (interval beyond zero, corrected p below 0.05), *contradicted*
if it is "worse" or the interval ends below the smallest gain claimed, *not shown* otherwise: the runs do not decide.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ecgr.report.comparison import Pair

CLAIMED_GAIN = 0.01
"""The paper: one to two points."""

Verdict = Literal["shown", "not shown", "contradicted", "not measured"]
Sweep = Literal["main", "controls", "ablations", "steps", "collapse", "full"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of the table."""

    says: str
    measured: str
    verdict: str
    sweep: Sweep


def verdict_on_gain(pair: Pair) -> Verdict:
    """The rule for gains in accuracy."""
    interval = pair.primary.interval
    if pair.verdict == "better":
        return "shown"
    if pair.verdict == "worse" or (interval is not None and interval[1] < CLAIMED_GAIN):
        return "contradicted"
    return "not shown"


def gain(pair: Pair) -> str:
    """A pair's difference in points with its interval and seeds."""
    found = pair.primary
    if found.mean is None or found.interval is None:
        return "not comparable"
    low, high = found.interval
    return f"{points(found.mean)} ({points(low)} to {points(high)}; {len(pair.seeds)} seeds)"


def points(value: float) -> str:
    """A difference of shares in percentage points.

    >>> points(0.0123), points(-0.00001)
    ('+1.23', '+0.00')
    """
    return f"{100 * value:+z.2f}"


def percent(value: float | None) -> str:
    """A share as per cent.

    >>> percent(0.5), percent(None)
    ('50 %', 'none')
    """
    return "none" if value is None else f"{100 * value:.0f} %"


def combined(verdicts: Sequence[str]) -> str:
    """One verdict for several settings; where they differ, how many each.

    >>> combined(["shown", "shown"]), combined(["shown", "not shown", "not shown"])
    ('shown', 'not shown 2, shown 1')
    """
    counts = Counter(verdicts)
    if len(counts) == 1:
        return verdicts[0]
    return ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items(), key=lambda item: -item[1]))
