"""The paper's claims, one by one: what it says, what was measured, and a verdict by the rules of `study.verdicts`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ecgr.report.comparison import Pair
from ecgr.report.step_maps import pooled_curve
from study.ablations import ablation_claims
from study.data import ALGORITHMS, DATASETS, Compared, Study
from study.verdicts import Claim, Verdict, combined, gain, percent, verdict_on_gain

HALVES = ("random_half", "first_half", "last_half", "smallest_norm", "bherd")
OFTEN, SELDOM = 0.95, 0.5
"""Shares from which something that the paper takes for granted counts as shown, and below which as contradicted."""


def claims(study: Study) -> list[Claim]:
    """Every row, in the order of the paper."""
    return [claim for made in CLAIMS for claim in made(study)]


def _main(study: Study) -> Iterable[Claim]:
    for data, name in DATASETS.items():
        found = [(title, study.compared["main"].pair(data, key)) for key, title in ALGORITHMS.items()]
        pairs = [(title, pair) for title, pair in found if pair is not None]
        absent = [title for title, pair in found if pair is None]
        text = "; ".join(f"{title} {gain(pair)}" for title, pair in pairs)
        yield Claim(
            f"{name}: with ECGR each algorithm ends 1 to 2 points above itself (figure 2)",
            text + (f"; not run: {', '.join(absent)}" if absent else ""),
            combined([verdict_on_gain(pair) for _, pair in pairs]),
            "main",
        )


def _controls(study: Study) -> Iterable[Claim]:
    controls = study.compared.get("controls")
    if controls is None:
        yield Claim("Controls for FedAvg", "not run yet", "not measured", "controls")
        return
    for data in ("mnist", "cifar10"):
        own = controls.pair(data, "fedavg")
        found = {name: controls.pair(data, "fedavg", name) for name in HALVES}
        others = {name: pair for name, pair in found.items() if pair is not None and len(pair.seeds) > 1}
        if own is None or own.primary.mean is None or not others:
            yield Claim(f"{DATASETS[data]}, FedAvg: controls", "not run yet", "not measured", "controls")
            continue
        as_good = [name for name, pair in others.items() if (pair.primary.mean or 0.0) >= own.primary.mean]
        text = "; ".join(f"`{name}` {gain(pair)}" for name, pair in others.items())
        yield Claim(
            f"{DATASETS[data]}, FedAvg: the gain comes from keeping the convergent steps, not any half of them",
            f"ECGR {gain(own)}; {text}",
            "shown" if own.verdict == "better" and not as_good else "not shown",
            "controls",
        )
        yield _length(controls, data, own)


def _length(controls: Compared, data: str, own: Pair) -> Claim:
    matched = controls.pair(data, "fedavg", "ecgr, step_control=match_plain")
    longer = controls.pair(data, "fedavg", "none, server_lr=1.05")
    parts = [f"ECGR {gain(own)}"]
    parts += [f"with the plain step's length {gain(matched)}"] if matched else []
    parts += [f"plain steps, 5 % longer {gain(longer)}"] if longer else []
    verdict = "not shown" if matched is None else verdict_on_gain(matched)
    says = f"{DATASETS[data]}, FedAvg: the gain is one of direction, the norm being restored"
    return Claim(says, "; ".join(parts), verdict, "controls")


def _label(entry: Any) -> str:
    config = entry["config"]
    return f"{DATASETS[config['data.name']]} at alpha {config['partition.alpha']:g}"


def outside(curve: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """The mean position over rounds, and the shares of rounds above and below the range of random choices."""
    mean = curve["mean"]
    above = fmean(float(m > high) for m, high in zip(mean, curve["chance_high"], strict=True))
    below = fmean(float(m < low) for m, low in zip(mean, curve["chance_low"], strict=True))
    return fmean(mean), above, below


POSITIONS: tuple[tuple[str, str, Callable[[float, float], bool]], ...] = (
    (
        "0.01",
        "Under strong heterogeneity mostly late steps are kept (figures 4, 11, 12)",
        lambda above, below: above > SELDOM,
    ),
    (
        "1",
        "With nearly equal clients the choice is nearly random (figure 11)",
        lambda above, below: 1 - above - below > SELDOM,
    ),
)


def _positions(study: Study) -> Iterable[Claim]:
    """Each kept step counts once, as in the paper's pictures: by client, short ones would outvote long ones."""
    for alpha, says, holds in POSITIONS:
        found = {name: outside(pooled_curve(study.maps[f"{data}-alpha-{alpha}"])) for data, name in DATASETS.items()}
        text = "; ".join(
            f"{name}: mean position {mean:.2f} (0.5 at random), later than 95 % of random choices in"
            f" {percent(above)} of rounds, earlier in {percent(below)}"
            for name, (mean, above, below) in found.items()
        )
        verdicts = ["shown" if holds(above, below) else "contradicted" for _, above, below in found.values()]
        yield Claim(f"alpha = {alpha}: {says}", text, combined(verdicts), "steps")


def _often(share: float | None) -> Verdict:
    if share is None:
        return "not measured"
    return "shown" if share >= OFTEN else "contradicted" if share < SELDOM else "not shown"


def _theory(study: Study) -> Iterable[Claim]:
    entries = [e for e in study.steps["theory"] if e["config"]["data.name"] in {"mnist", "cifar10"}]

    def row(says: str, tell: Callable[[Any], str], judge: Callable[[Any], Verdict]) -> Claim:
        text = "; ".join(f"{_label(e)}: {tell(e)}" for e in entries)
        return Claim(says, text, combined([judge(e) for e in entries]), "steps")

    yield row(
        "Assumption: kept steps are better aligned with the true gradient than the others",
        lambda e: f"held in {percent(e['shares']['assumption'])} of {e['updates']} updates",
        lambda e: _often(e["shares"]["assumption"]),
    )
    yield row(
        "Conclusion: the regulated update is nearer to the true gradient than the plain one",
        lambda e: (
            f"{percent(e['shares']['conclusion'])}; given the assumption"
            f" {percent(e['shares']['conclusion_given_assumption'])},"
            f" without it {percent(e['shares']['conclusion_given_not_assumption'])}"
        ),
        lambda e: _often(e["shares"]["conclusion"]),
    )
    yield row(
        "The theorem's condition, as repaired: beta is at least |a|²/|b|²",
        lambda e: (
            f"in {percent(e['shares']['beta_covers'])} of updates; |a|²/|b|² has median"
            f" {e['squared_ratio']['q50']:.3f}, middle 90 % {e['squared_ratio']['q05']:.3f} to"
            f" {e['squared_ratio']['q95']:.3f}, against beta {e['config']['regulator.beta']:g}"
        ),
        lambda e: _often(e["shares"]["beta_covers"]),
    )
    yield row(
        "Re-aggregation restores the length of the step (a client's exactly; here the server's)",
        lambda e: (
            f"|G'|/|G| has median {e['norm_ratio']['q50']:.3f}, middle 90 % {e['norm_ratio']['q05']:.3f} to"
            f" {e['norm_ratio']['q95']:.3f}"
        ),
        lambda e: "shown" if e["norm_ratio"]["q05"] > 0.99 and e["norm_ratio"]["q95"] < 1.01 else "contradicted",
    )
    yield row(
        "Regulation turns the server's step towards the true gradient",
        lambda e: (
            f"mean cosine {e['cosines']['before']:.3f} before, {e['cosines']['after']:.3f} after;"
            f" larger in {percent(e['cosines']['improved'])} of rounds"
        ),
        lambda e: _often(e["cosines"]["improved"]),
    )
    yield Claim(
        "Lemma: alignment falls monotonically with beta",
        "counterexample x = (1, 0), y = (0, 1), z = (1, 0.9): it grows until beta = 0.9"
        " ([theory](../guide/theory.md), `tests/unit/test_theory.py`)",
        "contradicted",
        "steps",
    )


def collapsed(entry: Any) -> bool:
    """At chance in the last five rounds, with negative variances there."""
    classes = {"cifar10": 10, "cifar100": 100}[entry["config"]["data.name"]]
    negative = any(value is None or value < 0 for value in entry["smallest_variance"][-5:])
    return negative and min(entry["accuracy"][-5:]) <= 1.05 / classes


REPORTED = (("optimizer.lr", 0.0001), ("partition.alpha", 0.1), ("regulator.beta", 0.0))
"""Where the paper reports a collapse of FedNova with ECGR."""


def reported(entry: Any) -> bool:
    """Whether the paper reports a collapse in this setting."""
    return any(entry["config"][key] == value for key, value in REPORTED)


def _collapse(study: Study) -> Iterable[Claim]:
    entries = study.collapse["statistics"]

    def count(buffers: str, where: bool) -> str:
        own = [e for e in entries if e["config"]["run.buffers"] == buffers and reported(e) == where]
        return f"{sum(map(collapsed, own))} of {len(own)}"

    yield Claim(
        "FedNova with ECGR collapses at lr 0.0001, at alpha 0.1 and at beta 0, and not at lr 0.01, alpha 1 or beta 0.5"
        " (figures 3, 6)",
        f"BatchNorm's statistics treated as weights: collapse in {count('as_weights', True)} settings where it is"
        f" reported, {count('as_weights', False)} where it is not",
        "shown" if count("as_weights", True)[0] not in "01" else "not shown",
        "collapse",
    )
    averaged = [count("average", where) for where in (True, False)]
    yield Claim(
        "The reason is that the optimisation overshoots the optimum",
        f"with the statistics averaged, and the same weights to the bit, collapse in {averaged[0]} and {averaged[1]}",
        "contradicted" if all(text.startswith("0 ") for text in averaged) else "not shown",
        "collapse",
    )


def _full(study: Study) -> Iterable[Claim]:
    says = "at full size FedAvg with ECGR ends 1 to 2 points above itself (figure 2)"
    full = study.compared.get("full")
    for data in ("mnist", "fashion_mnist"):
        pair = None if full is None else full.pair(data, "fedavg")
        if pair is None:
            yield Claim(f"{DATASETS[data]}: {says}", "not run here", "not measured", "full")
        else:
            yield Claim(f"{DATASETS[data]}: {says}", gain(pair), verdict_on_gain(pair), "full")


CLAIMS = (_main, _full, _controls, _positions, _theory, _collapse, ablation_claims)
