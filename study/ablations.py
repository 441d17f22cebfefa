"""The ablations: what the paper says of other learning rates, of less heterogeneity and of other beta."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ecgr.analysis.comparison import Pair, compare
from ecgr.analysis.metrics import PRIMARY
from study.data import ALGORITHMS, DATASETS, Compared, Study, dataset_of
from study.verdicts import Claim, Judge, agrees, combine, gain, gains, gains_nothing, loses

USUAL = {"lr": "0.001", "alpha": "0.01", "beta": "0.2"}
"""Where the paper stays when something else is varied; values as a comparison writes them."""
VARIED = ("lr 0.01", "lr 0.0001", "alpha 0.1", "alpha 1.0", "beta 0.0", "beta 0.5")
PLAIN, ECGR = "none", "ecgr(beta=0.2)"
OVER_ALL_ROUNDS = "area"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the paper: where it holds, against what, and how it is judged."""

    data: str
    says: str
    where: tuple[tuple[str, str], ...]
    """Algorithms and what is varied."""
    judge: Judge
    against: str = PLAIN
    metric: str = PRIMARY


SENTENCES = (
    Sentence(
        "mnist",
        "at lr 0.0001 ECGR cannot improve on plain training (figure 8)",
        (("fedavg", "lr 0.0001"), ("fednova", "lr 0.0001")),
        gains_nothing,
    ),
    Sentence("mnist", "at alpha 0.1 ECGR gains (figure 8)", (("fedavg", "alpha 0.1"),), gains),
    Sentence(
        "mnist",
        "with beta 0 most algorithms end above beta 0.2 (figure 8)",
        (("fedavg", "beta 0.0"), ("fednova", "beta 0.0")),
        gains,
        against=ECGR,
    ),
    Sentence(
        "cifar10",
        "at lr 0.0001 and 0.01 FedAvg with ECGR gains (figures 3, 7)",
        (("fedavg", "lr 0.0001"), ("fedavg", "lr 0.01")),
        gains,
    ),
    Sentence("cifar10", "at alpha 0.1 ECGR gains modestly (figure 7)", (("fedavg", "alpha 0.1"),), gains),
    Sentence(
        "cifar10",
        "at alpha 1, near to equal clients, plain training and ECGR agree (figure 3)",
        (("fedavg", "alpha 1.0"), ("fednova", "alpha 1.0")),
        agrees,
    ),
    Sentence(
        "cifar10",
        "with beta 0 training is slower early on than with 0.2 (figure 3; here the mean over all rounds)",
        (("fedavg", "beta 0.0"), ("fednova", "beta 0.0")),
        loses,
        against=ECGR,
        metric=OVER_ALL_ROUNDS,
    ),
    Sentence(
        "cifar10",
        "with beta 0.5 the gain is weaker than with 0.2 (figure 7)",
        (("fedavg", "beta 0.5"),),
        loses,
        against=ECGR,
    ),
)


def variation(pair: Pair) -> str:
    """What sets a pair apart from the paper's usual setting.

    >>> pair = Pair("data.name=mnist, optimizer.lr=0.01, partition.alpha=0.01", "fedavg", ECGR, PLAIN, (), {}, None, {})
    >>> variation(pair)
    'lr 0.01'
    """
    text = f"{pair.setting} {pair.regulator}"
    found = {key: value for key in USUAL for value in re.findall(rf"\b{key}=([\w.]+)", text)}
    return ", ".join(f"{key} {value}" for key, value in found.items() if value != USUAL[key])


def ablation_name(pair: Pair) -> str:
    """An algorithm and what is varied, for rows of tables and figures."""
    return f"{ALGORITHMS[pair.algorithm]}, {variation(pair) or 'as usual'}"


def ablation_pairs(ablations: Compared, data: str) -> list[Pair]:
    """ECGR against plain training in every setting of a data set, by algorithm and what was varied."""
    return sorted(ablations.pairs(data), key=lambda pair: (list(ALGORITHMS).index(pair.algorithm), variation(pair)))


def missing_ablations(ablations: Compared, data: str) -> list[str]:
    """The settings of the sweep that have fewer than two seeds."""
    found = {ablation_name(pair) for pair in ablations.pairs(data) if len(pair.seeds) > 1}
    wanted = [f"{ALGORITHMS[algorithm]}, {what}" for algorithm in ("fedavg", "fednova") for what in VARIED]
    return [name for name in wanted if name not in found]


def ablation_claims(study: Study) -> Iterable[Claim]:
    """A row for each sentence, or one that says that nothing was run."""
    ablations = study.compared.get("ablations")
    if ablations is None:
        yield Claim("Ablations of lr, alpha and beta", "not run yet", "not measured", "ablations")
        return
    compared = {baseline: compare(ablations.runs, baseline=baseline).pairs for baseline in (PLAIN, ECGR)}
    for sentence in SENTENCES:
        says = f"{DATASETS[sentence.data]}: {sentence.says}"
        found = {
            (pair.algorithm, variation(pair)): pair
            for pair in compared[sentence.against]
            if dataset_of(pair.setting) == sentence.data and pair.regulator != PLAIN
        }
        pairs = [found[place] for place in sentence.where if place in found and len(found[place].seeds) > 1]
        if not pairs:
            yield Claim(says, "not run", "not measured", "ablations")
            continue
        text = "; ".join(f"{ablation_name(pair)}: {gain(pair, sentence.metric)}" for pair in pairs)
        whom = "against beta 0.2: " if sentence.against == ECGR else ""
        verdicts = [sentence.judge(pair.estimates[sentence.metric]) for pair in pairs]
        yield Claim(says, whom + text, combine(verdicts), "ablations")
