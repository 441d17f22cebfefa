"""Paired comparison of finished runs: each method against its baseline, seed by seed, with a verdict and its cause.

The verdict rests on the primary metric alone, whose p-values are corrected over every pair of the comparison.
The other metrics have families of their own and get no verdict: they describe, they do not decide.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ecgr.analysis.length import LengthCurve, explain, length_curve, on_curve_of, place_pair
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.pairs import HEADLINE_PAIRS as HEADLINE_PAIRS
from ecgr.analysis.pairs import LEVEL as LEVEL
from ecgr.analysis.pairs import By as By
from ecgr.analysis.pairs import Cause as Cause
from ecgr.analysis.pairs import Estimate as Estimate
from ecgr.analysis.pairs import Pair as Pair
from ecgr.analysis.pairs import Verdict as Verdict
from ecgr.analysis.pairs import correct, match, runs_by_group
from ecgr.analysis.power import Power, power_of_design
from ecgr.analysis.verdicts import give_verdict
from ecgr.analysis.verdicts import judge as judge
from ecgr.errors import ConfigError

BASELINE = "none"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs, in the order in which their runs were first seen.

    ``baseline`` is a regulator or, where whole methods are compared, a method; ``family`` counts the primary tests,
    ``power`` is what they could show; ``curves`` are the baselines' length curves, where they were measured.
    """

    baseline: str
    family: int
    pairs: tuple[Pair, ...]
    by: By = "regulator"
    curves: tuple[LengthCurve, ...] = ()

    @property
    def power(self) -> Power:
        """What this number of seeds and pairs can show at all; that of the pair with the most seeds."""
        return power_of_design(max((len(pair.seeds) for pair in self.pairs), default=0), self.family)


def compare(runs: Iterable[RunSummary], baseline: str | None = None, by: By = "regulator") -> Comparison:
    """Compare every method with its baseline, paired by seed.

    Args:
        runs: Finished runs; those with the role ``length`` make the baselines' length curves.
        baseline: By default ``none`` for regulators, the first run's method for methods.
        by: ``regulator``: regulators within each setting and algorithm; ``method``: all methods of a setting.

    >>> def run(regulator, seed, gain):
    ...     return RunSummary("fedavg", regulator, seed, values=(0.5 + seed / 100 + gain,))
    >>> gains = (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011)
    >>> runs = [run("none", s, 0.0) for s in range(10)] + [run("ecgr", s, g) for s, g in enumerate(gains)]
    >>> compare(runs).pairs[0].verdict
    'better'
    >>> compare(runs, by="method").pairs[0].baseline_method
    'fedavg'
    """
    runs = list(runs)
    arms = [run for run in runs if run.role == "arm"]
    if baseline is None:
        baseline = BASELINE if by == "regulator" or not arms else arms[0].method
    groups = runs_by_group(arms, by)
    methods = dict.fromkeys(run.method for run in arms)
    if by == "method" and arms and baseline not in methods:
        raise ConfigError(f"baseline: no run of {baseline}; the methods are {', '.join(methods)}")
    keys = [(key, name) for key, own in groups.items() for name in own if name != baseline]
    matched = correct([match(groups[key], name, baseline) for key, name in keys])
    judged = [
        place_pair(give_verdict(pair), groups[key].get(baseline, {}), groups[key][name])
        for (key, name), pair in zip(keys, matched, strict=True)
    ]
    length = [run for run in runs if run.role == "length"]
    curves = {}
    for key, own in groups.items():
        points = [run for run in length if on_curve_of(run, own.get(baseline, {}))]
        if points:
            curves[key] = length_curve(own[baseline].values(), points)
    pairs = tuple(
        explain(pair, groups[key][name], curves[key]) if key in curves else pair
        for (key, name), pair in zip(keys, judged, strict=True)
    )
    family = sum(pair.primary.p is not None for pair in pairs)
    return Comparison(baseline, family, pairs, by, tuple(curves.values()))
