"""Every allowed pair of algorithm, server rule, regulator and loss: serial, resumed and pooled, the same bits.

Generated from the tables; a new entry is tested by existing. Pairs and not the whole product: see
`support.compositions`. Federations of each entry are in `flower/test_same_bits`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ecgr.errors import ConfigError
from ecgr.experiment.methods import method_name, parse_method
from ecgr.runs.checkpoint import load_checkpoint, save_checkpoint
from ecgr.runs.record import Position
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.engines.pool import ProcessPool
from ecgr.simulation.rounds import Snapshot, final_state, play_round, start
from ecgr.simulation.workspace import Portable, Problem, Workspace
from support.compositions import allowed, covering, refused
from support.problems import blobs, offer, problem, same_bits, small_net

pytestmark = pytest.mark.slow  # hundreds of small runs, some of them in processes
METHODS = covering(allowed(), together=2)


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def task(method: str, rounds: int = 3) -> Problem:
    """Four clients of 3, 1, 2 and 1 steps, two or three of whom take part; the learning rate halves every round."""
    sections: dict[str, dict[str, Any]] = {
        "model": {"name": "net"},
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "schedule": {"name": "step", "every": 1, "factor": 0.5},
        "federation": {"rounds": rounds, "batch_size": 4, "participation": 0.75},
    }
    for key, value in parse_method(method).items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    parts = [range(10), range(10, 14), range(14, 21), range(21, 24)]
    return problem(blobs(24), parts, **sections)


def same(one: Problem, a: Snapshot, b: Snapshot) -> bool:
    """Model handed out, where clients start, what server and clients remember: all to the bit."""
    tensors: list[tuple[Tensor, Tensor]] = [(a.params, b.params)]
    for left, right in [(final_state(one, a), final_state(one, b)), (a.server, b.server)]:
        assert left.keys() == right.keys()
        tensors += [(left[name], right[name]) for name in left]
    assert set(a.clients) == set(b.clients)
    tensors += [(state[name], b.clients[c][name]) for c, state in a.clients.items() for name in state]
    return all(same_bits(x, y) for x, y in tensors)


@cache
def ends(method: str) -> tuple[Snapshot, Snapshot]:
    """After two rounds and after three, in this process."""
    one = task(method)
    snapshot, engine = start(one), SerialEngine(one)
    for _ in range(2):
        snapshot = play_round(one, engine, snapshot).snapshot
    return snapshot, play_round(one, engine, snapshot).snapshot


@pytest.mark.parametrize("method", METHODS)
def test_three_rounds_stay_finite_and_go_on_from_a_checkpoint_to_the_same_bits(method: str, tmp_path: Path) -> None:
    one = task(method)
    before, end = ends(method)
    assert all(bool(torch.isfinite(t).all()) for t in [*final_state(one, end).values(), *end.server.values()])
    assert not torch.equal(final_state(one, end)["5.weight"], final_state(one, start(one))["5.weight"])
    save_checkpoint(tmp_path, before, Position(0, ""))
    restored = load_checkpoint(tmp_path)
    assert restored is not None
    assert same(one, end, play_round(one, SerialEngine(one), restored.snapshot).snapshot)


@dataclass(frozen=True)
class JobOf:
    """A job of one of many problems."""

    problem: int
    job: Any

    @property
    def cost(self) -> int:
        return int(self.job.cost)

    def run(self, workspaces: Sequence[Workspace]) -> Any:
        return self.job.run(workspaces[self.problem])


@dataclass(frozen=True)
class Opening:
    """Opens the workspaces of all problems in a worker."""

    problems: Sequence[Portable]

    def __call__(self) -> Sequence[Workspace]:
        return [each.open() for each in self.problems]


@dataclass(frozen=True)
class Pooled:
    """An engine for one of the problems of a pool."""

    pool: Any
    problem: int

    def map(self, jobs: Sequence[Any]) -> Iterator[Any]:
        answers: Iterator[Any] = self.pool.map([JobOf(self.problem, job) for job in jobs])
        return answers


@pytest.mark.slow
def test_a_pool_of_two_gives_the_bits_of_one_process() -> None:
    """One pool for all methods: starting processes takes longer than their rounds."""
    problems = [task(method) for method in METHODS]
    with ProcessPool(Opening([Portable.of(each) for each in problems]), workers=2) as pool:
        for index, (method, one) in enumerate(zip(METHODS, problems, strict=True)):
            before, end = ends(method)
            pooled = play_round(one, Pooled(pool, index), before).snapshot
            assert same(one, end, pooled), method


@pytest.mark.parametrize(("algorithm", "rule"), refused())
def test_what_does_not_go_together_is_refused_with_a_reason(algorithm: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=r"already is|takes the server's step itself"):
        parse_method(f"{algorithm}/{rule}")


def test_what_is_refused_is_what_has_a_server_step_of_its_own() -> None:
    own = {"feddyn", "fedavgm", "fedadam", "fedyogi", "fedacg", "fedexp", "drift_correction"}
    assert {algorithm for algorithm, _ in refused()} == own


NEUTRAL = [
    "fedprox(mu=0)",
    "scaffold(damping=0)",
    "scaffold(damping=0, units=gradient)",
    "fedcm(alpha=1)",
    "feddyn(rel=0)",
    "fedavgm(server_momentum=0)",
    "fedacg(momentum=0, mu=0)",
    "drift_correction(damping=0, momentum=0)",
    "fedavg/momentum(momentum=0)",
    "fedavg/momentum(momentum=0, normalised=true)",
    "fedavg/lookahead(momentum=0)",
    "fedavg/ema(decay=0)",
    "fedavg/exp(epsilon=1e30, average=false)",
    "fedavg[balanced_softmax(tau=0)]",
    "fedavg[fedrs(alpha=1)]",
    "fedavg[fedrs(alpha=1, form=counts)]",
    "fedavg[fedlc(tau=0)]",
    "fedavg[fedntd(beta=0)]",
]
"""FedNova, Adam, Yogi and NUR have no neutral value."""


@pytest.mark.parametrize("regulator", ["none", "ecgr"])
@pytest.mark.parametrize("method", NEUTRAL)
def test_the_neutral_value_is_fedavg_to_the_bit(method: str, regulator: str) -> None:
    plain, other = f"fedavg+{regulator}", f"{method}+{regulator}"
    expected, found = (final_state(task(each), ends(each)[1]) for each in (plain, other))
    assert all(same_bits(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_called_by_what_it_is(method: str) -> None:
    experiment = task(method).experiment
    name = method_name(experiment.to_dict())
    assert parse_method(name).items() >= {
        (key, value) for key, value in parse_method(method).items() if key != "loss.name"
    }
    assert len(name) <= len(method)
