"""The answer: a sentence for each method, best first, with a small picture of what it rests on.

The picture is worked out here, as plain numbers that `ecgr.report.page.dots` draws: a dot a seed, the interval, the
mean, the strip in which a difference is of no practical interest. Pictures of one metric share their axis, and better
is always to the right.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ecgr.analysis.comparison import Comparison, Pair, Verdict
from ecgr.report.page.dots import SIZE
from ecgr.report.sentences import best_first, details, sentence

MARKS: dict[Verdict, str] = {
    "better": "▲",
    "worse": "▼",
    "equivalent": "=",
    "not decided": "?",
    "too few seeds": "…",
    "not trained yet": "○",
    "diverged": "✕",
}
"""A verdict's sign, so that it is told by more than its colour and its word."""
TICKS = 4
"""About as many marks on an axis."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From a difference to a place in the picture, and the marks of its axis."""

    low: float
    high: float
    flipped: bool
    factor: float

    def place(self, value: float) -> float:
        """Where a difference lies, in the picture's units."""
        share = (value - self.low) / (self.high - self.low)
        return round(SIZE["left"] + (SIZE["right"] - SIZE["left"]) * (1 - share if self.flipped else share), 1)

    def marks(self) -> list[dict[str, Any]]:
        """Round numbers along the axis, written as they are shown."""
        step = _nice((self.high - self.low) * self.factor / TICKS)
        first = math.ceil(self.low * self.factor / step - 1e-9)
        last = math.floor(self.high * self.factor / step + 1e-9)
        return [
            {"x": self.place(number * step / self.factor), "text": f"{number * step:+.6g}" if number else "0"}
            for number in range(first, last + 1)
        ]


def answers(comparison: Comparison) -> list[dict[str, Any]]:
    """A card for each pair: settings in the order in which they come, in each the best first."""
    scales = {name: _scale(own) for name, own in _by_metric(comparison.pairs).items()}
    return [
        {
            "method": pair.method,
            "verdict": verdict_text(pair),
            "class": verdict_class(pair),
            "mark": "" if _says_nothing(pair) else MARKS[pair.verdict],
            "sentence": sentence(pair),
            "details": details(pair),
            "note": pair.note,
            "picture": None if pair.primary.mean is None else _picture(pair, scales[pair.metric.name]),
        }
        for pair in best_first(comparison.pairs)
    ]


def verdict_text(pair: Pair) -> str:
    """The verdict with its cause, where that was measured."""
    if _says_nothing(pair):
        return "nothing to compare"
    return f"{pair.verdict}, by {' and '.join(pair.causes)}" if pair.cause else pair.verdict


def verdict_class(pair: Pair) -> str:
    """The verdict as a name for styles."""
    return "nothing" if _says_nothing(pair) else pair.verdict.replace(" ", "-")


def _says_nothing(pair: Pair) -> bool:
    return pair.primary.mean is None and pair.verdict != "diverged"


def _by_metric(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in pairs:
        if pair.primary.mean is not None:
            found.setdefault(pair.metric.name, []).append(pair)
    return found


def _scale(pairs: Sequence[Pair]) -> Scale:
    """An axis for all of them, with zero on it and a little room at its ends."""
    ends = [0.0]
    for pair in pairs:
        ends += [value for value in pair.primary.differences if value is not None]
        ends += pair.primary.interval or ()
        ends += [-1.5 * (pair.margin or 0.0), 1.5 * (pair.margin or 0.0)]
    low, high = min(ends), max(ends)
    room = 0.04 * (high - low) or 1.0
    metric = pairs[0].metric
    return Scale(low - room, high + room, not metric.larger_is_better, 100.0 if metric.is_share else 1.0)


def _picture(pair: Pair, scale: Scale) -> dict[str, Any]:
    found, metric = pair.primary, pair.metric
    known = [(seed, value) for seed, value in zip(pair.seeds, found.differences, strict=True) if value is not None]
    margin = pair.margin or 0.0
    edges = sorted(scale.place(end) for end in (-margin, margin))
    interval = None if found.interval is None else sorted(scale.place(end) for end in found.interval)
    unit = f" {metric.difference_unit}" if metric.difference_unit else ""
    spread = "" if found.interval is None else ", interval {} to {}".format(*map(metric.change, found.interval))
    return {
        "alt": f"{pair.method} against {pair.baseline_method}: mean {metric.change(found.mean)}{unit}{spread};"
        f" one dot for each of {len(known)} {'seed' if len(known) == 1 else 'seeds'}",
        "unit": metric.difference_unit or metric.name.replace("_", " "),
        "zero": scale.place(0.0),
        "strip": {"x": edges[0], "width": round(edges[1] - edges[0], 1)},
        "dots": [
            {"x": scale.place(value), "text": f"seed {seed}: {metric.change(value)}{unit}"} for seed, value in known
        ],
        "interval": interval,
        "mean": scale.place(found.mean or 0.0),
        "marks": scale.marks(),
    }


def _nice(value: float) -> float:
    """The next of 1, 2, 5, 10, … times a power of ten.

    >>> [_nice(value) for value in (0.3, 1.2, 6.0)]
    [0.5, 2.0, 10.0]
    """
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value * (1 - 1e-9))
