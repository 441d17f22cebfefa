"""Which steps are kept, and whether the theory holds: the paper's sentences on both, and what else was measured."""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from ecgr.simulation.kept import Kept
from study.data import DATASETS, EXAMINED, Study
from study.labels import sort_entries
from study.positions import Curve, client_curve, outside, step_curve
from study.verdicts import SELDOM, Claim, Measurement, Verdict, combine, holds, percent


def position_claims(study: Study) -> Iterable[Claim]:
    """Each kept step counts once, as in the paper's pictures; by client, short ones would outvote long ones."""
    late = {data: study.maps[f"{data}-alpha-0.01"] for data in ("mnist", "fashion_mnist", "cifar10")}
    yield Claim(
        "alpha 0.01: the kept steps typically come late in local training (figures 4, 11, 12)",
        "; ".join(f"{DATASETS[data]}: {_position_text(kept)}" for data, kept in late.items()),
        combine([_either_way(kept, lambda curve: outside(curve)[0] > SELDOM) for kept in late.values()]),
        "steps",
    )
    turning = study.maps["cifar100-alpha-0.01"]
    curve = step_curve(turning)
    third = len(curve["mean"]) // 3

    def ends(curve: Curve) -> tuple[float, float]:
        return outside(curve, slice(None, third))[0], outside(curve, slice(-third, None))[1]

    early, at_last = ends(curve)
    yield Claim(
        "CIFAR-100, alpha 0.01: late steps are kept early in training, earlier ones towards its end (figure 12)",
        f"above the middle 95 % of random choices in {percent(early)} of the first third of the rounds, below it in"
        f" {percent(at_last)} of the last; mean position {fmean(curve['mean'][:third]):.2f}, then"
        f" {fmean(curve['mean'][-third:]):.2f}",
        _either_way(turning, lambda curve: min(ends(curve)) > SELDOM),
        "steps",
    )
    even = study.maps["cifar10-alpha-1"]
    yield Claim(
        "CIFAR-10, alpha 1: the choice tends to resemble a random one (figure 11)",
        _position_text(even),
        _either_way(even, lambda curve: 1 - sum(outside(curve)) > SELDOM),
        "steps",
    )


def _position_text(kept: Sequence[Kept]) -> str:
    curve = step_curve(kept)
    (above, below), (above_by_client, below_by_client) = outside(curve), outside(client_curve(kept))
    return (
        f"mean position {fmean(curve['mean']):.2f} (0.5 at random), above the middle 95 % of random choices in"
        f" {percent(above)} of rounds and below it in {percent(below)} (if each client counts once, in"
        f" {percent(above_by_client)} and {percent(below_by_client)})"
    )


def _either_way(kept: Sequence[Kept], holds_for: Callable[[Curve], bool]) -> Verdict:
    """Whether something holds, counted by step and by client; where the two disagree it is not shown."""
    found = [holds_for(step_curve(kept)), holds_for(client_curve(kept))]
    return "shown" if all(found) else "not shown" if any(found) else "contradicted"


def _entries(study: Study) -> list[Any]:
    return [e for e in sort_entries(study.steps["theory"]) if e["config"]["data.name"] in EXAMINED]


def _by_setting(study: Study, tell: Callable[[Any], str]) -> str:
    return "; ".join(
        f"{DATASETS[e['config']['data.name']]} at alpha {e['config']['partition.alpha']:g}: {tell(e)}"
        for e in _entries(study)
    )


def theory_claims(study: Study) -> Iterable[Claim]:
    """The assumption, the conclusion and the lemma."""

    def row(says: str, share: str, tell: Callable[[Any], str]) -> Claim:
        verdicts = [holds(e["shares"][share]) for e in _entries(study)]
        return Claim(says, _by_setting(study, tell), combine(verdicts), "steps")

    yield row(
        "Assumption: kept steps are better aligned with the true gradient than the others",
        "assumption",
        lambda e: f"held in {percent(e['shares']['assumption'])} of {e['updates']} updates",
    )
    yield row(
        "Conclusion: the regulated update is nearer to the true gradient than the plain one",
        "conclusion",
        lambda e: (
            f"{percent(e['shares']['conclusion'])}; given the assumption"
            f" {percent(e['shares']['conclusion_given_assumption'])},"
            f" without it {percent(e['shares']['conclusion_given_not_assumption'])}"
        ),
    )
    yield Claim(
        "Lemma: alignment falls monotonically with beta",
        "counterexample x = (1, 0), y = (0, 1), z = (1, 0.9): it grows until beta = 0.9 ([theory](theory.md))",
        "contradicted",
        "lemma",
    )


def theory_rows(study: Study) -> Iterable[Measurement]:
    """What the paper says of a client, measured on the server's step, and the condition that its proof lacks."""
    yield Measurement(
        "beta is at least |a|²/|b|², the condition of the repaired theorem",
        _by_setting(
            study,
            lambda e: (
                f"in {percent(e['shares']['beta_covers'])} of updates; |a|²/|b|² has median"
                f" {e['squared_ratio']['q50']:.3f}, middle 90 % {e['squared_ratio']['q05']:.3f} to"
                f" {e['squared_ratio']['q95']:.3f}, against beta {e['config']['regulator.beta']:g}"
            ),
        ),
        "steps",
    )
    yield Measurement(
        "Length of the server's step with regulation over that without; each client's length is restored exactly",
        _by_setting(
            study,
            lambda e: (
                f"|G'|/|G| has median {e['norm_ratio']['q50']:.3f}, middle 90 % {e['norm_ratio']['q05']:.3f} to"
                f" {e['norm_ratio']['q95']:.3f}"
            ),
        ),
        "steps",
    )
    yield Measurement(
        "Cosine of the server's step with the true gradient, before and after regulation",
        _by_setting(
            study,
            lambda e: (
                f"mean {e['cosines']['before']:.3f} before, {e['cosines']['after']:.3f} after;"
                f" larger in {percent(e['cosines']['improved'])} of rounds"
            ),
        ),
        "steps",
    )
