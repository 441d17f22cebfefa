"""The averaged model: a window over the last rounds, the same everywhere, never what clients start from."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ecgr.component import State
from ecgr.config.methods import parse_method
from ecgr.runs.runner import run
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import SHARE, averaged, mean_of
from ecgr.simulation.rounds import served, simulate, start
from support.commands import run_in_three_ways
from support.problems import blobs, offer, problem, same_bits, small_net

ROUNDS = 18


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=120))
def test_what_is_served_is_the_mean_of_a_seventh_to_a_quarter_of_the_rounds_so_far(values: list[float]) -> None:
    """The oracle keeps all models; the state keeps two means and two counts."""
    state: State = {}
    for rounds in range(1, len(values) + 1):
        model = {"w": torch.tensor([values[rounds - 1]], dtype=torch.float64), "counter": torch.tensor(rounds)}
        state = averaged(state, rounds, model)
        window = int(state["counts"][0])
        expected = sum(values[rounds - window : rounds]) / window
        assert float(mean_of(state)["w"]) == pytest.approx(expected, abs=1e-9)
        assert rounds / SHARE <= window <= max(1, rounds / SHARE + rounds / (SHARE - 1) + 1)
        assert int(mean_of(state)["counter"]) == rounds
        assert len(state) <= 5


@pytest.mark.parametrize("method", ["fedavg", "fedacg+ecgr", "fedexp"])
def test_it_averages_what_the_rule_serves_and_changes_nothing_for_clients(method: str) -> None:
    outcomes = {}
    for kind in ("last", "average"):
        sections: dict[str, Any] = {
            "model": {"name": small_net},
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
            "federation": {"rounds": ROUNDS, "batch_size": 8},
            "run": {"served": kind},
        }
        for key, value in parse_method(method).items():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
        chosen = problem(blobs(24), [range(10), range(10, 24)], **sections)
        rounds = simulate(chosen, SerialEngine(chosen), start(chosen))
        outcomes[kind] = [(chosen, outcome.snapshot) for outcome in rounds]
    lasts = [served(*outcome) for outcome in outcomes["last"]]
    for (_, plain), (chosen, snapshot) in zip(outcomes["last"], outcomes["average"], strict=True):
        assert same_bits(plain.params, snapshot.params)
        window = int(snapshot.average["counts"][0])
        recent = lasts[snapshot.rounds - window : snapshot.rounds]
        params, buffers = served(chosen, snapshot)
        assert torch.allclose(params, torch.stack([p for p, _ in recent]).mean(0), atol=1e-6)
        for name, tensor in buffers.items():
            if tensor.is_floating_point():
                assert torch.allclose(tensor, torch.stack([b[name] for _, b in recent]).mean(0), atol=1e-6)


@pytest.mark.slow
def test_serial_pooled_resumed_and_federated_serve_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("flwr", reason="the flower extra is not installed")
    from support.federations import experiment, federate

    offer(monkeypatch, net=small_net)
    chosen = experiment("fedacg", changes={"run.served": "average", "federation.rounds": 10})
    serial = run_in_three_ways(chosen, tmp_path, cut=9)
    federate(chosen, tmp_path / "federated")
    models = [folder / "model.safetensors" for folder in (serial, tmp_path / "federated")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_models_file_has_the_shapes_of_the_model(tmp_path: Path) -> None:
    """Counters of BatchNorm are scalars, and stay so."""
    from safetensors.torch import load_file
    from torch import nn

    from ecgr.tasks.task import Task

    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))

    rng = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(24, 4, generator=rng).numpy(), torch.randint(0, 2, (24,), generator=rng).numpy()
    ids = [f"c{i % 2}" for i in range(16)]
    task = Task(model=net, train=(inputs[:16], targets[:16]), test=(inputs[16:], targets[16:]), clients=ids)
    run(task, tmp_path / "run", settings={"federation.rounds": 1, "federation.batch_size": 4})
    shapes = {name: tensor.shape for name, tensor in load_file(tmp_path / "run/model.safetensors").items()}
    assert shapes == {name: tensor.shape for name, tensor in net().state_dict().items()}
