"""The paper's claims, one by one: what it says, what was measured, and a verdict by the rules of `study.verdicts`."""

from collections.abc import Iterable

from ecgr.analysis.comparison import Pair, compare
from study.ablations import ablation_claims
from study.collapse import collapse_claims
from study.data import ALGORITHMS, DATASETS, EXAMINED, LONGER, MATCHED, Compared, Study, dataset_of
from study.steps import position_claims, theory_claims
from study.tissue import tissue_claims
from study.verdicts import Claim, Verdict, combine, gain, gains_a_point

HALVES = ("random_half", "first_half", "last_half", "smallest_norm", "bherd")


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
            f"{name}: with ECGR each algorithm ends approximately 1 to 2 points above itself (figure 2)",
            text + (f"; not run: {', '.join(absent)}" if absent else ""),
            combine([gains_a_point(pair.primary) for _, pair in pairs]),
            "main",
        )


def _full(study: Study) -> Iterable[Claim]:
    full = study.compared.get("full")
    for data in ("mnist", "fashion_mnist"):
        says = f"{DATASETS[data]}: the same at full size, FedAvg (figure 2)"
        pair = None if full is None else full.pair(data, "fedavg")
        if pair is None:
            yield Claim(says, "not run here", "not measured", "full")
        else:
            yield Claim(says, gain(pair), gains_a_point(pair.primary), "full")


def _controls(study: Study) -> Iterable[Claim]:
    controls = study.compared.get("controls")
    from_ecgr = () if controls is None else compare(controls.runs, baseline="ecgr").pairs
    for data in EXAMINED:
        own = None if controls is None else controls.pair(data, "fedavg")
        if controls is None or own is None or own.primary.mean is None:
            yield Claim(f"{DATASETS[data]}, FedAvg: controls", "not run yet", "not measured", "controls")
            continue
        found = {name: controls.pair(data, "fedavg", name) for name in HALVES}
        others = {name: pair for name, pair in found.items() if pair is not None and len(pair.seeds) > 1}
        against_ecgr = {pair.regulator: pair for pair in from_ecgr if dataset_of(pair.setting) == data}
        text = "; ".join(f"`{name}` {gain(pair)}" for name, pair in others.items())
        nearest = max(others, key=lambda name: others[name].primary.mean or 0.0, default=None)
        text += f"; `{nearest}` against ECGR {gain(against_ecgr[nearest])}" if nearest else ""
        yield Claim(
            f"{DATASETS[data]}, FedAvg: the gain comes from keeping the convergent steps, not any half of them",
            f"ECGR {gain(own)}; {text}",
            verdict_on_choice(own, [against_ecgr[name] for name in others]),
            "controls",
        )
        yield _length(controls, data, own, against_ecgr.get(MATCHED))


def verdict_on_choice(own: Pair, against_ecgr: list[Pair]) -> Verdict:
    """Shown if ECGR gains and each other half is worse than ECGR; contradicted if one is as good or better."""
    verdicts = {pair.verdict for pair in against_ecgr}
    if verdicts & {"better", "equivalent"} and own.verdict == "better":
        return "contradicted"
    return "shown" if own.verdict == "better" and verdicts == {"worse"} else "not shown"


def _length(controls: Compared, data: str, own: Pair, against_ecgr: Pair | None) -> Claim:
    matched, longer = (controls.pair(data, "fedavg", name) for name in (MATCHED, LONGER))
    parts = [f"ECGR {gain(own)}"]
    parts += [f"with the plain step's length {gain(matched)}"] if matched else []
    parts += [f"which is {gain(against_ecgr)} against ECGR"] if against_ecgr else []
    parts += [f"plain steps, 5 % longer {gain(longer)}"] if longer else []
    says = f"{DATASETS[data]}, FedAvg: the gain is one of direction, the norm being restored"
    return Claim(says, "; ".join(parts), verdict_on_direction(own, matched), "controls")


def verdict_on_direction(own: Pair, matched: Pair | None) -> Verdict:
    """The gain must be there with the plain step's length too; where ECGR has none, there is nothing to explain."""
    if matched is None or not own.primary.excludes_zero or (own.primary.mean or 0.0) < 0:
        return "not shown"
    return gains_a_point(matched.primary)


CLAIMS = (_main, _full, tissue_claims, _controls, position_claims, theory_claims, collapse_claims, ablation_claims)
