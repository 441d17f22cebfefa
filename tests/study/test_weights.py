"""Weights by the server's samples: the loop is the library's, and the weights do what they are said to do."""

import pytest
import torch

from ecgr.config.experiment import load
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import simulate, start
from study import weights

BASE = {"schedule.name": "constant", "regulator.name": "none", "run.served": "average", "federation.rounds": 4}


@pytest.mark.parametrize(
    ("method", "regulator"), [("fedavg", {}), ("fedavg+ecgr", {"regulator.name": "ecgr", "regulator.beta": 0.2})]
)
def test_without_samples_a_run_is_the_library_s(method: str, regulator: dict[str, object]) -> None:
    base = load("demo").replace(BASE)
    dataset = base.source.load()
    problem = prepare(base.replace(regulator), dataset)
    known = [outcome.row["accuracy"] for outcome in simulate(problem, SerialEngine(problem), start(problem))]
    setting = weights.Setting(base.optimizer.lr)
    assert list(weights.curve(prepare(base, dataset), method, setting, 0, 4)) == pytest.approx(
        known, abs=0.01
    )  # by rounding


def test_the_server_s_samples_are_no_client_s() -> None:
    problem = prepare(load("demo").replace(BASE), load("demo").source.load())
    assert len(set(weights.server_rows(problem, 200).tolist())) == 200
    below = list(weights.curve(problem, "server steps", weights.Setting(0.0, 1.0, 0.3), 200, 3))
    assert below[-1] > below[0]


@pytest.mark.parametrize("method", ["clients", "all steps", "own steps"])
def test_chosen_weights_lower_the_loss_and_keep_the_length(method: str) -> None:
    rng = torch.Generator().manual_seed(0)
    start, steps = torch.zeros(6), [torch.randn(3, 6, generator=rng), torch.randn(2, 6, generator=rng)]
    target = -steps[1].sum(0)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        return ((flat - target) ** 2).sum()

    shares = [0.5, 0.5]
    plain = weights.plain(start, steps, shares, loss)
    made = weights.RULES[method](start, steps, shares, loss)
    assert loss(start - made) < loss(start - plain)
    if method != "own steps":
        torch.testing.assert_close(made.norm(), plain.norm())
