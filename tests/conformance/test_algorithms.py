"""Every entry of ALGORITHMS, through the one training loop. A new entry is tested by existing."""

import pytest
import torch

import ecgr.algorithms
from ecgr.algorithms import ALGORITHMS, Plan, Population, Trace, Upload, compose
from ecgr.component import State
from ecgr.simulation.client import train_client
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.rounds import participants, play_round, round_jobs, start
from ecgr.simulation.workspace import Workspace
from support.problems import TRAINED
from support.problems import four_clients as task

OTHER_STEP = {"fedadam", "fedyogi", "fedexp"}  # the model that is handed out does not move by the mean update

every = pytest.mark.parametrize("name", sorted(TRAINED))


def finite(state: State) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in state.values())


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
    result, _ = train_client(round_jobs(problem, snapshot)[0], workspace)
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
        server = algorithm.init_server(params)
        begun = algorithm.begin(Plan(2, 0.1, 0.9), server, algorithm.init_client(params))
        trace = Trace(update, update, steps=2, lr=0.1, momentum=0.9)
        return Upload(client, examples, algorithm.finish(trace, server, begun)[1])

    everybody = Population(clients=2, examples=10**9 + 1)
    alone, both = (
        algorithm.served(*algorithm.aggregate(params, algorithm.init_server(params), uploads, everybody, 0.1))
        for uploads in ([upload(0, 10**9, 0.5)], [upload(0, 10**9, 0.5), upload(1, 1, -3.0)])
    )
    assert torch.allclose(alone, both, rtol=0, atol=1e-6)


def test_the_old_name_of_an_upload_still_works_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match="now called Upload"):
        assert ecgr.algorithms.Contribution is Upload
