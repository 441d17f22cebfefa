"""What a site remembers, what a server goes on from, and what happens when either is lost."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from flwr.app import Message

from ecgr.config.experiment import Experiment
from ecgr.errors import ConfigError, QuorumLost
from ecgr.flower import Guard, MemoryGrid, client_app, server_app
from ecgr.flower.server import failure_path
from ecgr.flower.site import GENERATIONS, load_state, save_state
from support.commands import assert_same_run, files_below
from support.federations import Ticks, experiment, federate, nodes
from support.problems import offer, same_bits, small_net
from support.quick import quick_where


@pytest.fixture(autouse=True)
def _models(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, net=small_net)


class Crash(BaseException):
    """The ServerApp's process dies."""


class Mortal(MemoryGrid):
    """A Grid on which the server dies when it sends the orders of a round, or just after they were answered."""

    def __init__(self, chosen: Experiment, root: Path, deadly: str, answered: bool) -> None:
        super().__init__(client_app(chosen), nodes(root))
        self.deadly, self.answered = deadly, answered

    def push_messages(self, messages: Sequence[Message]) -> Sequence[str]:  # type: ignore[override]
        dies = messages[0].metadata.group_id == self.deadly
        identifiers = [] if dies and not self.answered else list(super().push_messages(messages))
        if dies:
            raise Crash
        return identifiers


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a server that nothing happens to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        offer(patch, net=small_net)
        federate(experiment("scaffold"), out)
    return out


@pytest.mark.parametrize(
    ("group", "answered"),
    quick_where(
        lambda group, answered: (group, answered) == ("2.1", True),
        [("1.1", False), ("2.1", False), ("2.1", True), ("3.1", True)],
    ),
)
def test_a_server_that_dies_goes_on_to_the_same_bits(group: str, answered: bool, whole: Path, tmp_path: Path) -> None:
    """Sites that had already answered the lost round have moved on by a round, and are taken back."""
    chosen, out = experiment("scaffold"), tmp_path / "run"
    with pytest.raises(Crash):
        Mortal(chosen, tmp_path / "sites", group, answered).serve(server_app(chosen, out, clock=Ticks()))
    federate(chosen, out)
    assert_same_run(out, whole)


@pytest.mark.slow
def test_a_server_started_after_the_end_changes_nothing(tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    federate(chosen, tmp_path / "run")
    before = files_below(tmp_path / "run")
    federate(chosen, tmp_path / "run")
    assert files_below(tmp_path / "run") == before


def test_a_lost_client_state_is_recovered_from_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = experiment("scaffold", changes={"federation.participation": 1.0})

    def forgetful(node: int, order: Message, reply: Message) -> Sequence[Message]:
        if node == 1 and order.metadata.group_id == "1.1":
            for path in (tmp_path / "sites" / "site-1").rglob("*.state"):
                path.write_bytes(path.read_bytes()[:-1])
        return [reply]

    record = federate(chosen, tmp_path / "run", tamper=forgetful)
    assert [[c["client"] for c in row["clients"] if "state_lost" in c] for row in record.rounds] == [[], [1], []]
    assert "altered or cut short); starting again from none" in caplog.text
    assert list((tmp_path / "sites").rglob("*.state"))
    assert not list((tmp_path / "run").rglob("*.state")), "states stay at the site"


def test_a_site_state_comes_back_bit_for_bit_or_not_at_all(tmp_path: Path) -> None:
    value = {"control": torch.tensor([0.1, -0.0, float("nan")])}
    for index in range(7):
        save_state(tmp_path, index, value)
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == GENERATIONS
    loaded = load_state(tmp_path, 6)
    assert loaded is not None
    assert same_bits(loaded["control"], value["control"])
    for position in range(0, kept[-1].stat().st_size, 7):
        content = bytearray(kept[-1].read_bytes())
        content[position] ^= 1
        kept[-2].write_bytes(content)
        assert load_state(tmp_path, 5) is None
    kept[-2].write_bytes(b"")
    assert load_state(tmp_path, 5) is None
    assert load_state(tmp_path, 99) is None


def test_a_lost_quorum_is_told_to_whoever_looks_after_the_server(tmp_path: Path) -> None:
    chosen = experiment("fedavg")
    with pytest.raises(QuorumLost, match=r"round 1: void 3 times, 0 of 3 replies usable, 2 needed"):
        federate(chosen, tmp_path / "run", tamper=lambda node, order, reply: [])
    assert '"code": 6' in failure_path(tmp_path / "run").read_text()
    record = federate(chosen, tmp_path / "run")
    assert record.finished
    assert not failure_path(tmp_path / "run").exists()


def test_more_clients_cannot_be_needed_than_take_part(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_clients: 4 are needed, but only 3 take part"):
        federate(experiment("fedavg"), tmp_path / "run", guard=Guard(min_clients=4))
