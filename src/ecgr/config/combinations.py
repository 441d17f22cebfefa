"""What does not go together, though each part is well formed: found before anything is read or written."""

from collections.abc import Iterator

from ecgr.algorithms import (
    ALGORITHMS,
    SERVER_RULES,
    Entry,
    FedAvg,
    ServerRule,
    Shorthand,
    compose,
    is_whole,
)
from ecgr.algorithms.server_rules import Average
from ecgr.config.optimizers import OptimizerFactory


def combination_problems(entry: Entry, rule: ServerRule, optimizer: OptimizerFactory) -> Iterator[str]:
    """One line for every two settings that cannot be had together."""
    problem = clash(entry, rule)
    if problem is not None:
        yield f"server.name: {problem}"
        return
    follows_gradient = getattr(optimizer, "follows_gradient", False)  # one's own need not say
    if compose(entry, rule).in_gradient_units and not follows_gradient:
        yield (
            f"optimizer.name: {name_of(entry)} takes a client's displacement for a sum of gradients, which"
            f" {type(optimizer).__name__}'s is not; use sgd, or an algorithm without such a unit"
        )


def clash(entry: Entry, rule: ServerRule) -> str | None:
    """Why an algorithm and a server rule cannot be combined, if they cannot.

    >>> clash(FedAvg(server_lr=2.0), Average(lr=1.5))
    'algorithm.server_lr and server.lr both set the length of the step; keep server.lr'
    """
    if rule == Average():
        return None
    if isinstance(entry, Shorthand):
        correction, own = entry.parts()
        whole = f"{name_of(correction)}/{SERVER_RULES.name_of(own)}"
        return f"{name_of(entry)} already is {whole}; leave [server] at average, or name {name_of(correction)} instead"
    if is_whole(entry):
        return f"{name_of(entry)} takes the server's step itself; leave [server] at average"
    if isinstance(entry, FedAvg) and entry.server_lr != 1:
        return "algorithm.server_lr and server.lr both set the length of the step; keep server.lr"
    return None


def name_of(entry: object) -> str:
    """An algorithm's name in its table, or that of its class."""
    return ALGORITHMS.name_of(entry) or type(entry).__name__
