"""Every entry of ALGORITHMS with every regulator, through the one training loop. A new entry is tested by existing."""

from itertools import product

import pytest
import torch

import ecgr.algorithms
from ecgr.algorithms import ALGORITHMS, Algorithm, Plan, Population, Trace, Upload, compose
from ecgr.component import State
from ecgr.core.regulators import REGULATORS
from ecgr.simulation.client import ClientJob, train_client
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import Snapshot, participants, play_round, start
from ecgr.simulation.workspace import Problem, Workspace
from support.problems import TRAINED
from support.problems import four_clients as task
from support.quick import quick_where

OTHER_STEP = {"fedadam", "fedyogi", "fedexp"}  # the model that is handed out does not move by the mean update

every = pytest.mark.parametrize("name", sorted(TRAINED))
with_every_regulator = pytest.mark.parametrize(
    ("name", "regulator"),
    quick_where(
        lambda name, regulator: name == "fedavg" or regulator == "ecgr",
        product(sorted(TRAINED), sorted(REGULATORS)),
    ),
)


def finite(state: State) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in state.values())


def finish(algorithm: Algorithm, trace: Trace, server: State) -> tuple[State, State]:
    """A client's first round, of which the trace is given."""
    plan = Plan(trace.steps, trace.lr, trace.momentum)
    return algorithm.finish(trace, server, algorithm.begin(plan, server, algorithm.init_client(trace.plain)))


def train(task: Problem, snapshot: Snapshot, client: int, workspace: Workspace) -> tuple[Upload, State]:
    algorithm = task.experiment.algorithm
    state = snapshot.clients.get(client) or algorithm.init_client(snapshot.params)
    server = algorithm.broadcast(snapshot.server)
    job = ClientJob(client, snapshot.rounds, 0.05, 1, snapshot.params, snapshot.buffers, state, server)
    return train_client(job, workspace)


@with_every_regulator
def test_a_round_with_every_regulator_moves_the_model_and_stays_finite(name: str, regulator: str) -> None:
    problem = task(name, regulator={"name": regulator})
    snapshot, workspace = start(problem), Workspace(problem)
    results = []
    for client in range(4):
        result, state = train(problem, snapshot, client, workspace)
        assert finite(result.payload)
        assert finite(state)
        assert result.payload["update"].shape == snapshot.params.shape
        assert result.steps == [3, 1, 2, 1][client]
        assert bool(result.kept) == (regulator != "none")
        assert set(result.kept) <= set(range(result.steps))
        results.append(result)
    params, server = problem.experiment.algorithm.aggregate(
        snapshot.params, snapshot.server, results, Population(clients=4, examples=24), 0.05
    )
    assert params.dtype == torch.float32
    assert torch.isfinite(params).all()
    assert not torch.equal(params, snapshot.params)
    assert finite(server)
    assert set(server) >= set(snapshot.server)


@every
def test_partial_participation_over_three_rounds(name: str) -> None:
    """Half of the clients take part; the others' states stay as they were, everything stays finite."""
    problem = task(name, federation={"rounds": 3, "batch_size": 4, "participation": 0.5})
    snapshot, engine = start(problem), SerialEngine(problem)
    for _ in range(3):
        chosen = participants(problem, snapshot.rounds)
        assert len(chosen) == 2
        outcome = play_round(problem, engine, snapshot)
        assert [row["client"] for row in outcome.row["clients"]] == chosen
        after = outcome.snapshot
        assert torch.isfinite(after.params).all()
        assert finite(after.server)
        for client, state in snapshot.clients.items():
            if client not in chosen:
                assert after.clients[client] is state
        snapshot = after
    assert all(finite(state) for state in snapshot.clients.values())


@pytest.mark.parametrize("name", sorted(set(TRAINED) - OTHER_STEP))
def test_one_client_alone_with_plain_updates_moves_the_model_to_its_end_point(name: str) -> None:
    """w - (w - end) is end, up to the last bit of the larger of the two."""
    problem = task(name, regulator={"name": "none"})
    snapshot, workspace = start(problem), Workspace(problem)
    result, _ = train(problem, snapshot, 0, workspace)
    end = workspace.spec.read(workspace.model)
    algorithm = problem.experiment.algorithm
    params = algorithm.served(
        *algorithm.aggregate(snapshot.params, snapshot.server, [result], Population(clients=4, examples=24), 0.05)
    )
    largest = torch.maximum(end.abs(), snapshot.params.abs())
    ulps = 1 if name in {"fedavg", "fedprox", "scaffold", "fedcm", "fedavgm"} else 8  # others divide, or look ahead
    assert ((params - end).abs() <= ulps * torch.finfo(torch.float32).eps * largest).all()
    assert (params - end).abs().max() < 1e-3 * (snapshot.params - end).abs().max()


@every
def test_aggregation_weighs_by_examples_and_not_by_order_of_magnitude(name: str) -> None:
    """A client with all the examples decides: one of weight 1 in 10^9 beside it changes nothing visible."""
    algorithm = compose(ALGORITHMS[name]())
    params = torch.linspace(-1, 1, 5)

    def upload(client: int, examples: int, value: float) -> Upload:
        update = torch.full((5,), value)
        trace = Trace(update, update, steps=2, lr=0.1, momentum=0.9)
        return Upload(client, examples, finish(algorithm, trace, algorithm.init_server(params))[1])

    everybody = Population(clients=2, examples=10**9 + 1)
    alone, both = (
        algorithm.served(*algorithm.aggregate(params, algorithm.init_server(params), uploads, everybody, 0.1))
        for uploads in ([upload(0, 10**9, 0.5)], [upload(0, 10**9, 0.5), upload(1, 1, -3.0)])
    )
    assert torch.allclose(alone, both, rtol=0, atol=1e-6)


def test_the_old_name_of_an_upload_still_works_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="now called Upload"):
        assert ecgr.algorithms.Contribution is Upload
