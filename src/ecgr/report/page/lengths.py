"""Length or direction: a baseline's curve with its band, and each method at its own length, as picture and table."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.comparison import Comparison, Pair
from ecgr.analysis.length import LengthCurve
from ecgr.analysis.pairs import Part
from ecgr.report.page.answers import verdict_class, verdict_text
from ecgr.report.page.numbers import axis_title, short, shown_as
from ecgr.report.page.tables import Cell, Table, table
from ecgr.report.sentences import best_first

Span = tuple[float, float]


def length_pictures(comparison: Comparison) -> list[dict[str, Any]]:
    """One for each curve that has a band; lengths in units of the baseline's own."""
    return [_picture(curve, pairs) for curve, pairs in placed_pairs(comparison)]


def placed_pairs(comparison: Comparison) -> list[tuple[LengthCurve, list[Pair]]]:
    """Each curve that can be drawn, with the pairs that are read against it."""
    return [
        (curve, pairs)
        for curve in comparison.curves
        if curve.band() and (pairs := [pair for pair in best_first(comparison.pairs) if _belongs(pair, curve)])
    ]


def length_table(comparison: Comparison) -> Table | None:
    """How far each method went, and what of its difference is direction and what step length."""
    pairs = [pair for _, pairs in placed_pairs(comparison) for pair in pairs]
    if not pairs:
        return None
    several = len({pair.setting for pair in pairs}) > 1
    return table(
        "Each difference in its two parts, with intervals that hold together at 95 %",
        [
            "method",
            *(["setting"] if several else []),
            "length#",
            "difference#",
            "by direction#",
            "by step length#",
            "cause",
        ],
        [
            [
                Cell(pair.method),
                *([Cell(pair.setting)] if several else []),
                Cell(f"{length_of(pair):.2f}", length_of(pair)),
                Cell(pair.metric.change(pair.primary.mean), pair.primary.mean),
                *(_part_cell(pair, part) for part in (pair.split.direction, pair.split.length)),
                Cell(
                    " and ".join(pair.causes) or pair.split.reason or "-",
                    style=verdict_class(pair) if pair.cause else "no-cause",
                ),
            ]
            for pair in pairs
            if pair.split is not None
        ],
    )


def length_of(pair: Pair) -> float:
    """The method's path in units of the baseline's."""
    ratio = None if pair.split is None else pair.split.ratio
    return 0.0 if ratio is None else ratio


def method_interval(pair: Pair) -> Span | None:
    """Where a method's value lies, paired: around what the curve has at its length, or around the baseline."""
    found, split = pair.primary, pair.split
    if found.regulated_mean is None:
        return None
    part = split.direction if split is not None else None
    mean, interval = (found.mean, found.interval) if part is None else (part.mean, part.interval)
    if mean is None or interval is None:
        return None
    return found.regulated_mean - mean + interval[0], found.regulated_mean - mean + interval[1]


def mean_knots(curve: LengthCurve) -> list[Span]:
    """Where the baseline was run: mean length, in units of its own, and mean value, over the seeds that have all."""
    seeds = [seed for seed in curve.knots if seed in curve.baseline]
    most = max((len(curve.knots[seed]) for seed in seeds), default=0)
    rows = [curve.knots[seed] for seed in seeds if len(curve.knots[seed]) == most]
    own = baseline_path(curve)
    return [(fmean(row[place][0] for row in rows) / own, fmean(row[place][1] for row in rows)) for place in range(most)]


def baseline_path(curve: LengthCurve) -> float:
    """The mean length of the baseline's own path."""
    return fmean(path for path, _ in curve.baseline.values())


def _belongs(pair: Pair, curve: LengthCurve) -> bool:
    return (
        (pair.setting, pair.baseline_method) == (curve.setting, curve.baseline_method)
        and pair.primary.mean is not None
        and length_of(pair) > 0
    )


def _picture(curve: LengthCurve, pairs: Sequence[Pair]) -> dict[str, Any]:
    quantity, own = pairs[0].metric, baseline_path(curve)
    lengths = [length for length, *_ in curve.band()]
    return {
        "label": curve.setting,
        "baseline": curve.baseline_method,
        "metric": axis_title(quantity),
        "alt": f"{axis_title(quantity)} against the length of all server steps: the curve of {curve.baseline_method},"
        f" and {', '.join(pair.method for pair in pairs)} at their own lengths; the numbers are in the table below",
        "far": short(lengths[0] ** 0.3 * lengths[-1] ** 0.7 / own),
        "band": [
            [short(length / own), *(shown_as(quantity, value) for value in values)] for length, *values in curve.band()
        ],
        "knots": [[short(length), shown_as(quantity, value)] for length, value in mean_knots(curve)],
        "methods": [
            {
                "label": pair.method,
                "verdict": pair.verdict,
                "verdict_text": verdict_text(pair),
                "length": short(length_of(pair)),
                "value": shown_as(quantity, pair.primary.regulated_mean),
                "interval": None if span is None else [shown_as(quantity, end) for end in span],
                "parts": _parts(pair),
            }
            for pair in pairs
            for span in [method_interval(pair)]
        ],
    }


def _parts(pair: Pair) -> str:
    split = pair.split
    if split is None or split.direction is None or split.length is None:
        return "" if split is None else split.reason
    change = pair.metric.change
    return f"direction {change(split.direction.mean)}, step length {change(split.length.mean)}"


def _part_cell(pair: Pair, part: Part | None) -> Cell:
    if part is None:
        return Cell("-")
    change = pair.metric.change
    return Cell(f"{change(part.mean)} ({change(part.interval[0])} to {change(part.interval[1])})", part.mean)
