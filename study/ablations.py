"""The ablations: what the paper says of other learning rates, of less heterogeneity and of other beta."""

import re
from collections.abc import Callable, Iterable, Sequence

from ecgr.report.comparison import Pair, compare
from study.data import ALGORITHMS, DATASETS, Compared, Study, dataset_of
from study.verdicts import CLAIMED_GAIN, Claim, Verdict, combined, gain, verdict_on_gain

USUAL = {"lr": "0.001", "alpha": "0.01", "beta": "0.2"}
"""Where the paper stays when something else is varied; values as a comparison writes them."""
ABLATED = ("mnist", "cifar10")
PLAIN, ECGR, DISCARDING = "none", "ecgr(beta=0.2)", "ecgr(beta=0.0)"


def varied(pair: Pair) -> str:
    """What sets a pair apart from the paper's usual setting.

    >>> pair = Pair("data.name=mnist, optimizer.lr=0.01, partition.alpha=0.01", "fedavg", ECGR, PLAIN, (), {}, None, {})
    >>> varied(pair)
    'lr 0.01'
    """
    text = f"{pair.setting} {pair.regulator}"
    found = {key: value for key in USUAL for value in re.findall(rf"\b{key}=([\w.]+)", text)}
    return ", ".join(f"{key} {value}" for key, value in found.items() if value != USUAL[key])


def ablation_name(pair: Pair) -> str:
    """An algorithm and what is varied, for rows of tables and figures."""
    return f"{ALGORITHMS[pair.algorithm]}, {varied(pair) or 'as usual'}"


def verdict_on_agreement(pair: Pair) -> Verdict:
    """Two arms agree if the interval lies within the smallest gain claimed, and differ if it excludes all of that."""
    interval = pair.primary.interval
    if interval is None:
        return "not shown"
    low, high = interval
    if low > -CLAIMED_GAIN and high < CLAIMED_GAIN:
        return "shown"
    return "contradicted" if low >= CLAIMED_GAIN or high <= -CLAIMED_GAIN else "not shown"


def verdict_on_loss(pair: Pair) -> Verdict:
    """A loss of any size is claimed: shown if the arm is worse, contradicted if it is better or equivalent."""
    decided: dict[str, Verdict] = {"worse": "shown", "better": "contradicted", "equivalent": "contradicted"}
    return decided.get(pair.verdict, "not shown")


def ablation_pairs(ablations: Compared, data: str) -> list[Pair]:
    """ECGR against plain training in every setting of a data set, by algorithm and what was varied."""
    return sorted(ablations.pairs(data), key=lambda pair: (list(ALGORITHMS).index(pair.algorithm), varied(pair)))


def ablation_claims(study: Study) -> Iterable[Claim]:
    """Three rows for each data set, or one that says that nothing was run."""
    ablations = study.compared.get("ablations")
    if ablations is None:
        yield Claim("Ablations of lr, alpha and beta", "not run yet", "not measured", "ablations")
        return
    for data in ABLATED:
        name = DATASETS[data]
        own = {(pair.algorithm, varied(pair)): pair for pair in ablation_pairs(ablations, data)}
        rates = [own[key] for key in (("fedavg", "lr 0.01"), ("fedavg", "lr 0.0001")) if key in own]
        yield _row(f"{name}: FedAvg gains at other learning rates too (figures 3, 8 to 10)", rates, verdict_on_gain)
        alike = [own[key] for key in (("fedavg", "alpha 1.0"), ("fednova", "alpha 1.0")) if key in own]
        says = f"{name}: at alpha 1, near to equal clients, plain training and ECGR agree (figure 3)"
        yield _row(says, alike, verdict_on_agreement)
        against_ecgr = compare(ablations.runs, baseline=ECGR).pairs
        discarding = [p for p in against_ecgr if p.regulator == DISCARDING and dataset_of(p.setting) == data]
        says = f"{name}: without the exploratory steps (beta 0) it goes worse than with beta 0.2 (figure 3)"
        yield _row(says, discarding, verdict_on_loss)


def _row(says: str, pairs: Sequence[Pair], judge: Callable[[Pair], Verdict]) -> Claim:
    if not pairs:
        return Claim(says, "not run", "not measured", "ablations")
    text = "; ".join(f"{ablation_name(pair)}: {gain(pair)}" for pair in pairs)
    return Claim(says, text, combined([judge(pair) for pair in pairs]), "ablations")
