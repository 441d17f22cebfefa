"""Length or direction: what a method gains over plain training that goes exactly as far as it does.

The baseline is run at several server step lengths. For each seed these runs give a curve, the metric against the path
length (the server's steps added up), interpolated by monotone cubic pieces (PCHIP: no overshoot between two points)
and never continued beyond its ends. A method is placed at its own path length. What it gains over the curve there is
*direction*; what the curve gains there over the baseline is *step length*. Both add up to the difference, seed by seed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from ecgr.analysis.metrics import RunSummary, last5
from ecgr.analysis.pairs import LEVEL, Cause, Pair, Part, Split
from ecgr.analysis.statistics import paired_t_interval

PARTS = 2
"""Direction and length share the 5 % for errors, so that each has an interval of 97.5 %."""
LEAST_SHARE = 0.1
"""A part that is a smaller share of the difference is not its cause: interpolation alone could err by as much."""
FACTORS = (0.5, 0.7, 1.4, 2.0, 2.8, 4.0)
"""Step lengths at which the baseline is run, in units of its own."""
FIRST_FACTORS = (0.7, 1.4)
"""Where nobody asked for the curve itself, it begins beside the baseline and goes only as far as the methods do."""
FACTOR_LIMITS = (0.125, 8.0)
MOST_FACTORS = 10
WIDEST_GAP = 2.0
"""Where the curve is read, its points must not be further apart in path length: it may rise and fall between them."""
SPARE = 1.1
"""How far beyond a method's path the curve is extended."""
ROUNDING = 1e-9
GRID = 33
"""Places at which the mean curve is drawn."""

Knots = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LengthCurve:
    """The baseline at several server step lengths: by seed the path lengths and values, shortest first.

    ``factors`` are the step lengths in units of the baseline's own, 1 among them; ``steps`` those of each knot, and
    ``baseline`` is the knot that is the baseline itself.
    """

    setting: str
    algorithm: str
    baseline_method: str
    factors: tuple[float, ...]
    knots: Mapping[int, Knots]
    steps: Mapping[int, tuple[float, ...]]
    baseline: Mapping[int, tuple[float, float]]

    def value(self, seed: int, path: float) -> float | None:
        """The curve of one seed at a path length; None beyond its ends."""
        lengths, values = (np.array(column) for column in zip(*self.knots[seed], strict=True))
        if not lengths[0] * (1 - ROUNDING) <= path <= lengths[-1] * (1 + ROUNDING):
            return None
        from scipy.interpolate import PchipInterpolator  # slow to load, and only a length curve needs it

        return float(PchipInterpolator(lengths, values)(min(max(path, lengths[0]), lengths[-1])))

    def neighbours(self, seed: int, path: float) -> tuple[float, float]:
        """How many times as far the next point goes as the one before a path length, and the factor between them."""
        lengths = [length for length, _ in self.knots[seed]]
        after = min(max(1, bisect_right(lengths, path)), len(lengths) - 1)
        return lengths[after] / lengths[after - 1], sqrt(self.steps[seed][after - 1] * self.steps[seed][after])

    def band(self) -> list[tuple[float, float, float, float]]:
        """For a picture: path lengths common to all seeds, with the mean curve and its interval there."""
        if len(self.knots) < 2:
            return []
        low = max(own[0][0] for own in self.knots.values())
        high = min(own[-1][0] for own in self.knots.values())
        places: NDArray[np.float64] = np.linspace(low, high, GRID) if low < high else np.empty(0)
        band = []
        for place in places.tolist():
            values = [value for seed in self.knots if (value := self.value(seed, place)) is not None]
            if len(values) > 1:
                band.append((place, fmean(values), *paired_t_interval(values, LEVEL)))
        return band


def length_curve(baseline: Iterable[RunSummary], longer: Sequence[RunSummary]) -> LengthCurve:
    """The curve of a baseline's runs and of the same at other server step lengths; unfinished runs are left out."""
    own = {run.seed: run for run in baseline}
    rounds = max(run.rounds for run in own.values())
    first = next(iter(own.values()))
    knots: dict[int, Knots] = {}
    steps: dict[int, tuple[float, ...]] = {}
    factors: set[float] = {1.0}
    for seed, base in own.items():
        inside = [run for run in (base, *(r for r in longer if r.seed == seed)) if run.rounds == rounds]
        found = [(run.path, last5(run), run.server_lr / base.server_lr) for run in inside]
        known = [(path, value, factor) for path, value, factor in found if path is not None and value is not None]
        factors |= {round(factor, 6) for *_, factor in known}
        by_length: dict[float, list[tuple[float, float]]] = {}
        for path, value, factor in known:
            by_length.setdefault(path, []).append((value, factor))
        if len(by_length) > 1:
            places = sorted(by_length)
            knots[seed] = tuple((path, fmean(value for value, _ in by_length[path])) for path in places)
            steps[seed] = tuple(fmean(factor for _, factor in by_length[path]) for path in places)
    ends = {seed: (run.path, last5(run)) for seed, run in own.items() if seed in knots}
    return LengthCurve(
        first.setting,
        first.algorithm,
        first.method,
        tuple(sorted(factors)),
        knots,
        steps,
        {seed: (path, end) for seed, (path, end) in ends.items() if path is not None and end is not None},
    )


def on_curve_of(run: RunSummary, baseline: Mapping[int, RunSummary]) -> bool:
    """Whether a run differs from the baseline's in the length of the server's step alone."""
    own = next(iter(baseline.values()), None)
    if own is None or run.setting != own.setting:
        return False
    return (run.curve or run.algorithm) == (own.curve or own.algorithm)


def place_pair(pair: Pair, baseline: Mapping[int, RunSummary], arm: Mapping[int, RunSummary]) -> Pair:
    """The pair with how far both sides went."""
    path, baseline_path = (_mean_path([side[seed] for seed in pair.seeds]) for side in (arm, baseline))
    return replace(pair, split=Split(path, baseline_path)) if pair.seeds else pair


def explain(pair: Pair, arm: Mapping[int, RunSummary], curve: LengthCurve) -> Pair:
    """The pair with its difference split into direction and step length, and the cause of its verdict."""
    if pair.split is None or pair.split.path is None or len(pair.seeds) < 2 or pair.primary.mean is None:
        return pair
    if missing := [seed for seed in pair.seeds if seed not in curve.baseline]:
        reason = f"no length curve for seed {', '.join(map(str, missing))}"
        return replace(pair, split=replace(pair.split, reason=reason))
    paths = {seed: path for seed in pair.seeds if (path := arm[seed].path) is not None}
    ends = {seed: end for seed in pair.seeds if (end := last5(arm[seed])) is not None}
    at_own = {seed: curve.value(seed, path) for seed, path in paths.items()}
    expected = {seed: value for seed, value in at_own.items() if value is not None}
    outside = _outside(paths, curve)
    if len(expected) < len(pair.seeds):
        return replace(pair, split=replace(pair.split, outside=outside, reason=_beyond(pair, curve, expected)))
    gap, between = (median(column) for column in zip(*(curve.neighbours(s, p) for s, p in paths.items()), strict=True))
    if gap > WIDEST_GAP * (1 + ROUNDING):
        reason = f"the curve's points beside its path are {gap:.2g} times apart: too far to tell"
        return replace(pair, split=replace(pair.split, between=between, reason=reason))
    direction = _part([ends[seed] - expected[seed] for seed in pair.seeds])
    length = _part([expected[seed] - curve.baseline[seed][1] for seed in pair.seeds])
    cause, reason = None, ""
    if pair.verdict in ("better", "worse"):
        cause = cause_of(pair.primary.mean, direction, length)
        reason = "" if cause else "neither part alone is shown"
    remarks = (*pair.remarks, *_tuned_apart(pair))
    split = replace(pair.split, direction=direction, length=length, reason=reason)
    return replace(pair, cause=cause, remarks=remarks, split=split)


def cause_of(difference: float, direction: Part, length: Part) -> Cause | None:
    """The parts that are shown to go the way of the difference, each at least a tenth of it.

    >>> much, little = Part((), 0.02, (0.01, 0.03)), Part((), 0.001, (-0.01, 0.012))
    >>> cause_of(0.021, much, little), cause_of(0.021, little, much), cause_of(0.04, much, much)
    ('direction', 'step length', 'both')
    """
    by_direction, by_length = (_shown(part, difference) for part in (direction, length))
    if by_direction and by_length:
        return "both"
    return "direction" if by_direction else "step length" if by_length else None


def missing_factors(
    pairs: Iterable[Pair], curves: Sequence[LengthCurve] = (), factors: Sequence[float] = FACTORS
) -> tuple[float, ...]:
    """Step lengths, in units of the baseline's, at which it still has to be run so that the methods lie on its curve.

    The methods are those that are better or worse, as only their differences have causes; all where there is none.
    Without a curve: those of ``FACTORS`` that enclose the methods' path lengths. With one that falls short: one step
    further, within ``FACTOR_LIMITS``; with one that is too coarse where a method lies: one point between. Empty when
    nothing is missing, or nothing more can be done.
    """
    known = {factor for curve in curves for factor in curve.factors}
    placed = [(pair.verdict in ("better", "worse"), pair.split) for pair in pairs if pair.split is not None]
    splits = [split for shown, split in placed if shown or not any(shown for shown, _ in placed)]
    if not known:
        ratios = [split.ratio for split in splits if split.ratio]
        shortest, longest = min(ratios, default=1.0) / SPARE, max(ratios, default=1.0) * SPARE
        low = max((factor for factor in (*factors, 1.0) if factor <= shortest), default=factors[0])
        high = min((factor for factor in (*factors, 1.0) if factor >= longest), default=factors[-1])
        return tuple(factor for factor in factors if min(low, 1.0) <= factor <= max(high, 1.0))
    short = min((split.outside[0] for split in splits), default=1.0)
    far = max((split.outside[1] for split in splits), default=1.0)
    wanted = [split.between for split in splits if split.between is not None]
    wanted += [min(known) * short / SPARE] * (short < 1) + [max(known) * far * SPARE] * (far > 1)
    least, most = FACTOR_LIMITS
    clipped = {float(f"{min(max(factor, least), most):.2g}") for factor in wanted}
    return tuple(sorted(clipped - known)) if len(known) < MOST_FACTORS else ()


def _shown(part: Part, difference: float) -> bool:
    low, high = part.interval
    beyond = low > 0 if difference > 0 else high < 0
    return beyond and abs(part.mean) >= LEAST_SHARE * abs(difference)


def _tuned_apart(pair: Pair) -> list[str]:
    if pair.tuned is None:
        return []
    own, base = pair.tuned
    return [f"tuned to {own}, {pair.baseline_method} to {base}: what is not step length is direction or that choice"]


def _part(differences: Sequence[float]) -> Part:
    interval = paired_t_interval(differences, 1 - (1 - LEVEL) / PARTS)
    return Part(tuple(differences), fmean(differences), interval)


def _outside(paths: Mapping[int, float], curve: LengthCurve) -> tuple[float, float]:
    """By what factors paths fall short of the curve's shortest, and go beyond its longest."""
    short = min(path / curve.knots[seed][0][0] for seed, path in paths.items())
    far = max(path / curve.knots[seed][-1][0] for seed, path in paths.items())
    return min(short, 1.0), max(far, 1.0)


def _beyond(pair: Pair, curve: LengthCurve, expected: Mapping[int, float]) -> str:
    ends = [(own[0][0], own[-1][0], curve.baseline[seed][0]) for seed, own in curve.knots.items()]
    low, high = fmean(first / base for first, _, base in ends), fmean(last / base for _, last, base in ends)
    ratio = pair.split.ratio if pair.split is not None else None
    away = len(pair.seeds) - len(expected)
    return (
        f"its path is {ratio or 0:.2g} times the baseline's and the curve goes from {low:.2g} to {high:.2g} times:"
        f" beyond it in {away} of {len(pair.seeds)} seeds, where nothing is read from it"
    )


def _mean_path(runs: Sequence[RunSummary]) -> float | None:
    paths = [path for run in runs if (path := run.path) is not None]
    return fmean(paths) if paths and len(paths) == len(runs) else None
