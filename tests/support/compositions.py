"""Methods to try, made from the tables: every allowed pair of parts at least once, without the whole product.

The product of algorithms, rules, regulators and losses has thousands of members and takes hours; what breaks breaks
between two parts. Regulators are covered against every algorithm elsewhere, so here are two of them.
"""

from collections.abc import Sequence
from itertools import combinations, product

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.errors import ConfigError
from ecgr.experiment.combinations import clash
from ecgr.experiment.methods import parse_method
from ecgr.tasks.losses import LOSSES

CLASSIFICATION = [name for name in LOSSES if name not in {"bce", "mse"}]
VARIANTS = ["scaffold(damping=0.5)", "scaffold(damping=0.5, units=gradient, control_rate=0.4)", "fedacg(mu=0)"]
REGULATORS = ["none", "ecgr"]

Parts = tuple[str, str, str, str]


def text_of(parts: Parts) -> str:
    """In one line."""
    algorithm, rule, regulator, loss = parts
    return f"{algorithm}[{loss}]/{rule}+{regulator}"


def allowed() -> list[Parts]:
    """Every member of the product that the package does not refuse."""
    found = []
    for parts in product([*ALGORITHMS, *VARIANTS], SERVER_RULES, REGULATORS, CLASSIFICATION):
        try:
            parse_method(text_of(parts))
        except ConfigError:
            continue
        found.append(parts)
    return found


def refused() -> list[tuple[str, str]]:
    """Every algorithm and rule that do not go together."""
    pairs = product(ALGORITHMS, SERVER_RULES)
    return [(a, r) for a, r in pairs if clash(ALGORITHMS[a](), SERVER_RULES[r]()) is not None]


def covering(candidates: Sequence[Parts], together: int) -> list[str]:
    """Few of the candidates, in which every value (``together`` 1) or pair of values (2) of them occurs."""

    def tuples(parts: Parts) -> set[tuple[tuple[int, str], ...]]:
        return set(combinations(enumerate(parts), together))

    missing = set().union(*map(tuples, candidates))
    chosen = []
    while missing:
        best = max(candidates, key=lambda parts: len(tuples(parts) & missing))
        missing -= tuples(best)
        chosen.append(text_of(best))
    return chosen
