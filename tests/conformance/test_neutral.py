"""Every entry of the tables with its neutral value is FedAvg, to the bit, whatever the regulator."""

from functools import cache

import pytest
from torch import Tensor

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.config.methods import Method
from ecgr.core.regulators import REGULATORS
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import final_state, simulate, start
from ecgr.tasks.losses import LOSSES
from support.compositions import tiny
from support.problems import same_bits

NEUTRAL = [
    "fedprox(mu=0)",
    "scaffold(damping=0)",
    "scaffold(damping=0, units=gradient)",
    "fedcm(alpha=1)",
    "feddyn(rel=0)",
    "fedavgm(server_momentum=0)",
    "fedacg(momentum=0, mu=0)",
    "drift_correction(damping=0, momentum=0)",
    "fedavg/average(lr=1)",
    "fedavg/momentum(momentum=0)",
    "fedavg/momentum(momentum=0, normalised=true)",
    "fedavg/lookahead(momentum=0)",
    "fedavg/exp(epsilon=1e30, average=false)",
    "fedavg[balanced_softmax(tau=0)]",
    "fedavg[fedrs(alpha=1)]",
    "fedavg[fedrs(alpha=1, form=counts)]",
    "fedavg[fedlc(tau=0)]",
    "fedavg[fedntd(beta=0)]",
]
WITHOUT = {
    "fedavg",
    "fednova",
    "fedadam",
    "adam",
    "fedyogi",
    "yogi",
    "nur",
    "fedexp",
    "cross_entropy",
    "bce",
    "mse",
    "head_only",
}
"""FedAvg, the plain losses, and what takes no steps, or others whatever its parameters.

FedExP hands out the mean of two.
"""


@cache
def model(method: str, regulator: str) -> dict[str, Tensor]:
    """After two rounds."""
    loss = "" if "[" in method else "[cross_entropy]"
    correction, slash, rule = method.partition("/")
    problem = tiny(f"{correction}{loss}{slash}{rule}+{regulator}")
    *_, last = simulate(problem, SerialEngine(problem), start(problem))
    return final_state(problem, last.snapshot)


@pytest.mark.slow
@pytest.mark.parametrize("method", NEUTRAL)
def test_the_neutral_value_is_fedavg_to_the_bit(method: str) -> None:
    for regulator in REGULATORS:
        expected, found = model("fedavg", regulator), model(method, regulator)
        assert [name for name in expected if not same_bits(expected[name], found[name])] == [], regulator


def test_every_entry_of_the_tables_has_one_or_is_known_to_have_none() -> None:
    methods = [Method.of(method) for method in NEUTRAL]
    named = {ALGORITHMS.name_of(m.algorithm) for m in methods} | {SERVER_RULES.name_of(m.server) for m in methods}
    named |= {LOSSES.name_of(m.loss) for m in methods if m.loss is not None}
    assert {*ALGORITHMS, *SERVER_RULES, *LOSSES} == {name for name in named if name} | WITHOUT
