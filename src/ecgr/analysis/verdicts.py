"""What a pair's numbers allow to say: the rule for the verdict, and what its reader should also know.

In order: what diverged has no end to compare; nothing is said of models that learned nothing; a difference that was
shown is better or worse; what the number of seeds cannot show at all is not read as "no difference"; then equivalent,
or not decided.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ecgr.analysis.metrics import LAST
from ecgr.analysis.pairs import HEADLINE_PAIRS, Estimate, Pair, Verdict
from ecgr.analysis.power import ALPHA, least_seeds, seeds_for_effect


def give_verdict(pair: Pair) -> Pair:
    """The pair with its verdict, the seeds that would decide, and a note."""
    verdict = judge(pair.primary, pair.metric.larger_is_better)
    if pair.diverged == (pair.method,):
        verdict = "diverged"
    elif len(pair.at_chance) > 1 or (pair.at_chance and verdict == "equivalent"):
        verdict = "not trained yet"
    remarks = (*_remarks(pair, verdict), *_omissions(pair.left_out))
    needed = seeds_for_effect(pair.primary.dz, pair.family)
    return replace(pair, verdict=verdict, remarks=remarks, seeds_needed=needed)


def judge(estimate: Estimate, larger_is_better: bool = True) -> Verdict:
    """Better or worse if the interval excludes zero and the corrected p is below 0.05; or what else can be said.

    >>> judge(Estimate((0.01, 0.03), mean=0.02, interval=(0.01, 0.03), p_holm=0.01, p_least=0.01))
    'better'
    >>> judge(Estimate((0.01, 0.03), mean=0.02, interval=(0.01, 0.03), p_holm=0.06, p_least=0.06))
    'too few seeds'
    >>> judge(Estimate((-0.01, 0.03), mean=0.01, interval=(-0.02, 0.04), p_holm=0.5, p_least=0.01))
    'not decided'
    """
    if estimate.mean is None:
        return "not decided" if estimate.differences else "too few seeds"
    if estimate.excludes_zero and _below_alpha(estimate.p_holm):
        return "better" if (estimate.mean > 0) == larger_is_better else "worse"
    if estimate.interval is None or (estimate.p_least is not None and estimate.p_least >= ALPHA):
        return "too few seeds"
    return "equivalent" if estimate.has_spread and _below_alpha(estimate.p_equivalent) else "not decided"


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
    elif verdict == "not decided" and estimate.identical:
        yield "identical in every seed, to the bit: what sets the methods apart had no effect"
    elif verdict == "not decided" and estimate.excludes_zero:
        yield f"the interval excludes zero, but p = {estimate.p_holm:.3g} after Holm over {_pairs(pair.family)}"
    elif verdict == "not decided" and _below_alpha(estimate.p_holm):
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


def _seeds(which: list[int]) -> str:
    return f"{'seeds' if len(which) > 1 else 'seed'} {', '.join(map(str, which))}"


def _pairs(family: int) -> str:
    return f"{family} {'pairs' if family > 1 else 'pair'}"


def _below_alpha(p: float | None) -> bool:
    return p is not None and p < ALPHA
