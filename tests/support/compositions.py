"""Methods to try, made from the tables: the whole product of their entries, and few of it that cover every pair."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.config.methods import parse_method
from ecgr.core.regulators import REGULATORS
from ecgr.errors import ConfigError
from ecgr.tasks.losses import LOSSES

VARIANTS = ["scaffold(damping=0.5)", "scaffold(damping=0.5, units=gradient, control_rate=0.4)", "fedacg(mu=0)"]

Parts = tuple[str, str, str, str]


def text_of(parts: Parts) -> str:
    """In one line."""
    algorithm, rule, regulator, loss = parts
    return f"{algorithm}[{loss}]/{rule}+{regulator}"


@cache
def pairs() -> tuple[list[tuple[str, str]], dict[tuple[str, str], str]]:
    """Algorithms and server rules that go together, and those that do not, with the reason."""
    together, apart = [], {}
    for algorithm, rule in product([*ALGORITHMS, *VARIANTS], SERVER_RULES):
        try:
            parse_method(f"{algorithm}/{rule}")
        except ConfigError as error:
            apart[algorithm, rule] = str(error)
        else:
            together.append((algorithm, rule))
    return together, apart


def whole(algorithm: str, rule: str) -> list[str]:
    """An algorithm and a rule with every regulator and every loss."""
    return [text_of((algorithm, rule, regulator, loss)) for regulator, loss in product(REGULATORS, LOSSES)]


def covering(together: int, losses: Sequence[str] = tuple(LOSSES)) -> list[str]:
    """Few methods, in which every value (``together`` 1) or allowed pair of values (2) of the tables occurs."""

    candidates: list[Parts] = [(*pair, *rest) for pair in pairs()[0] for rest in product(REGULATORS, losses)]
    left = {parts: set(combinations(enumerate(parts), together)) for parts in candidates}
    missing = set().union(*left.values())
    chosen = []
    while missing:
        best = max(left, key=lambda parts: len(left[parts] & missing))
        missing -= left.pop(best)
        chosen.append(text_of(best))
    return chosen
