"""Who speaks for whom, and what a site lets out."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.problems import offer, small_net
from support.quick import quick_where

pytest.importorskip("flwr", reason="the flower extra is not installed")

from flwr.app import Message

from ecgr.config.experiment import Experiment
from ecgr.errors import QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.fleet import Fleet
from ecgr.runs.record import RunRecord
from ecgr.simulation.prepare import prepare
from support.federations import CLIENTS, Ticks, experiment, nodes

KEYS = [bytes([65 + client]) for client in range(CLIENTS)]


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


def fleet(grid: MemoryGrid, chosen: Experiment, *, keyed: bool = False) -> Fleet:
    dataset = chosen.source.load()
    keys = dict(enumerate(KEYS)) if keyed else None
    return Fleet(grid, keys=keys, clock=Ticks()).expect(prepare(chosen, dataset), dataset.shape)


def test_nodes_are_known_by_the_client_they_name(tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    found = fleet(MemoryGrid(client_app(chosen), nodes(tmp_path, [2, 0, 3, 1])), chosen).present()
    assert found == {2: 1000, 0: 1013, 3: 1026, 1: 1039}


def test_who_comes_later_cannot_take_a_place_over(tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    grid = MemoryGrid(client_app(chosen), nodes(tmp_path, [0, 1, 1]))
    assert fleet(grid, chosen).present() == {0: 1000, 1: 1013}


def test_a_site_cannot_speak_for_another(tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    grid = MemoryGrid(client_app(chosen), nodes(tmp_path, [0, 0, 2, 3]), keys=KEYS)
    assert fleet(grid, chosen, keyed=True).present() == {0: 1000, 2: 1026, 3: 1039}


@pytest.mark.parametrize("identity", quick_where(lambda client: client == CLIENTS, zip([None, -1, CLIENTS, "0", True])))
def test_a_node_without_a_sensible_client_is_not_used(identity: object, tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    grid = MemoryGrid(client_app(chosen), [*nodes(tmp_path, [0]), {"partition-id": identity}])
    assert fleet(grid, chosen).present() == {0: 1000}


def test_a_node_with_other_data_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = experiment("fedavg")
    other = experiment("fedavg", changes={"partition.alpha": 0.05})
    assert fleet(MemoryGrid(client_app(other), nodes(tmp_path, [0])), chosen).present() == {}
    assert "site-0 cannot join: examples: it holds other data" in caplog.text


def test_an_exceptions_text_stays_at_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The site's own log has it; nothing that the server writes or hears does."""
    chosen, canary = experiment("fedavg"), "canary-51f0: patient 4711"
    heard: list[str] = []

    def fail(*_: object) -> None:
        raise ValueError(canary)

    def listen(node: int, order: Message, reply: Message) -> list[Message]:
        heard.append(repr(reply))
        return [reply]

    monkeypatch.setattr("ecgr.flower.site.answer", fail)
    grid = MemoryGrid(client_app(chosen), nodes(tmp_path / "sites"), tamper=listen)
    with pytest.raises(QuorumLost) as lost:
        grid.serve(server_app(chosen, tmp_path / "run", guard=Guard(), clock=Ticks()))
    assert canary in caplog.text
    assert "ValueError (code 101)" in str(lost.value)
    assert canary not in str(lost.value)
    assert len(heard) == 9
    assert not any(canary in text for text in heard)
    assert not any(canary.encode() in path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert RunRecord.open(tmp_path / "run").rounds == []


def test_without_flower_one_is_told_what_to_install() -> None:
    script = "import sys; sys.modules['flwr'] = None\nimport ecgr.flower"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "a federation needs packages of the extra 'flower': pip install 'flwr" in done.stderr
