"""Every method against the baseline, seed by seed, with a verdict and what its reader should also know.

The rule, in order: what diverged has no end to compare; nothing is said of models that learned nothing; a difference
that was shown is better or worse; what the number of seeds cannot show at all is not read as "no difference"; then
equivalent, or inconclusive. It rests on the primary metric alone, whose p-values are corrected over every pair. The
other metrics have families of their own and get no verdict: they describe, they do not decide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ecgr.analysis.pairs import HEADLINE_PAIRS, Estimate, Pair, Verdict, correct, match, runs_by_setting
from ecgr.analysis.power import ALPHA, Power, least_seeds, power_of, seeds_for_effect
from ecgr.analysis.records import Run
from ecgr.analysis.summaries import LAST, RunSummary

BASELINE = "fedavg"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What a comparison found: all pairs, in the order in which their runs were first seen.

    ``runs`` is empty where it was made of ``summaries`` alone; ``directory`` is where its files lie, None where none
    were written.
    """

    baseline: str
    pairs: tuple[Pair, ...]
    summaries: Sequence[RunSummary] = ()
    runs: Sequence[Run] = ()
    directory: Path | None = None

    @property
    def family(self) -> int:
        """How many primary tests the p-values are corrected over."""
        return sum(pair.primary.p is not None for pair in self.pairs)

    @property
    def power(self) -> Power:
        """What this number of seeds and pairs can show at all; that of the pair with the most seeds."""
        return power_of(max((len(pair.seeds) for pair in self.pairs), default=0), self.family)


def compare(runs: Iterable[RunSummary], baseline: str | None = None) -> Comparison:
    """Compare every method of a setting with the baseline, paired by seed.

    >>> gains = (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011)
    >>> runs = [RunSummary("fedavg", seed, values=(0.5,)) for seed in range(10)]
    >>> runs += [RunSummary("fedavg+ecgr", seed, values=(0.5 + gain,)) for seed, gain in enumerate(gains)]
    >>> compare(runs).pairs[0].verdict
    'better'
    """
    runs = tuple(runs)
    baseline = baseline or default_baseline(runs)
    matched = [
        match(own, method, baseline) for own in runs_by_setting(runs).values() for method in own if method != baseline
    ]
    return Comparison(baseline, tuple(give_verdict(pair) for pair in correct(matched)), runs)


def default_baseline(runs: Sequence[RunSummary]) -> str:
    """``fedavg`` where it is among the runs, and the first run's method where it is not."""
    methods = [run.method for run in runs]
    return BASELINE if BASELINE in methods or not methods else methods[0]


def give_verdict(pair: Pair) -> Pair:
    """The pair with its verdict, the seeds that would decide, and a note."""
    verdict = primary_verdict(pair.primary, pair.metric.larger_is_better)
    if pair.diverged == (pair.method,):
        verdict = "diverged"
    elif len(pair.at_chance) > 1 or (pair.at_chance and verdict == "equivalent"):
        verdict = "not trained yet"
    remarks = (*_remarks(pair, verdict), *_omissions(pair.left_out))
    needed = seeds_for_effect(pair.primary.dz, pair.family)
    return replace(pair, verdict=verdict, remarks=remarks, seeds_needed=needed)


def primary_verdict(estimate: Estimate, larger_is_better: bool = True) -> Verdict:
    """Better or worse if the interval excludes zero and the corrected p is below 0.05; or what else can be said.

    >>> primary_verdict(Estimate((0.01, 0.03), mean=0.02, interval=(0.01, 0.03), p_holm=0.01, p_least=0.01))
    'better'
    >>> primary_verdict(Estimate((0.01, 0.03), mean=0.02, interval=(0.01, 0.03), p_holm=0.06, p_least=0.06))
    'too few seeds'
    >>> primary_verdict(Estimate((-0.01, 0.03), mean=0.01, interval=(-0.02, 0.04), p_holm=0.5, p_least=0.01))
    'inconclusive'
    """
    if estimate.mean is None:
        return "inconclusive" if estimate.differences else "too few seeds"
    if estimate.excludes_zero and _below_alpha(estimate.p_holm):
        return "better" if (estimate.mean > 0) == larger_is_better else "worse"
    if estimate.interval is None or (estimate.p_least is not None and estimate.p_least >= ALPHA):
        return "too few seeds"
    return "equivalent" if estimate.has_spread and _below_alpha(estimate.p_equivalent) else "inconclusive"


def _remarks(pair: Pair, verdict: Verdict) -> Iterator[str]:
    """What a reader of the verdict should also know."""
    estimate, count = pair.primary, len(pair.seeds)
    if estimate.mean is None:
        missing = [seed for seed, gain in zip(pair.seeds, estimate.differences, strict=True) if gain is None]
        who = " and ".join(pair.diverged)
        yield (
            f"{who} without a finite {pair.metric.name} at the end of {_seeds(missing)}, or without a finite step on"
            " the way: training diverged there"
            if missing
            else "no seed has a finished run on both sides"
        )
        return
    if count == 1:
        yield "one pair tells nothing about chance"
    elif verdict in ("better", "worse"):
        if _below_alpha(estimate.p_equivalent) and pair.margin is not None:
            yield f"smaller than {pair.metric.amount(pair.margin)}"
    elif verdict == "too few seeds":
        yield (
            f"{count} seeds cannot show anything among {_pairs(pair.family)}: p after Holm is {estimate.p_least:.3g} at"
            f" best, and at least {least_seeds(pair.family)} are needed"
        )
    elif verdict == "inconclusive" and estimate.identical:
        yield "identical in every seed, to the bit: what sets the methods apart had no effect"
    elif verdict == "inconclusive" and estimate.excludes_zero:
        yield f"the interval excludes zero, but p = {estimate.p_holm:.3g} after Holm over {_pairs(pair.family)}"
    elif verdict == "inconclusive" and _below_alpha(estimate.p_holm):
        yield f"p = {estimate.p_holm:.3g} after Holm, but the interval includes zero"
    if pair.rising:
        curves = "both curves improve" if len(pair.rising) > 1 else f"{pair.rising[0]} improves"
        yield f"not converged: more rounds or a larger lr first ({curves} to the end)"
    if pair.rounds < LAST:
        yield f"only {pair.rounds} {'round' if pair.rounds == 1 else 'rounds'}: what counts is the {pair.description}"
    if 1 < count < HEADLINE_PAIRS:
        yield f"exploratory: fewer than {HEADLINE_PAIRS} seeds"


def _omissions(left_out: Mapping[int, str]) -> list[str]:
    """Say once for each reason which seeds are missing.

    >>> _omissions({3: "no run of ecgr", 5: "no run of ecgr"})
    ['seeds 3, 5 left out (no run of ecgr)']
    """
    seeds: dict[str, list[int]] = {}
    for seed, reason in left_out.items():
        seeds.setdefault(reason, []).append(seed)
    return [f"{_seeds(which)} left out ({reason})" for reason, which in seeds.items()]


def _seeds(which: Sequence[int]) -> str:
    return f"{'seeds' if len(which) > 1 else 'seed'} {', '.join(map(str, which))}"


def _pairs(family: int) -> str:
    return f"{family} {'pairs' if family > 1 else 'pair'}"


def _below_alpha(p: float | None) -> bool:
    return p is not None and p < ALPHA
