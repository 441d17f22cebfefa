"""Clients' states on disk: old indices stay valid, damage is noticed, files go when nobody needs them."""

from pathlib import Path

import pytest
import torch

import ecgr
from ecgr.component import State
from ecgr.errors import ConfigError, EnvironmentFault, IntegrityError
from ecgr.runs.checkpoint import CLIENTS, StatesOnDisk, load_checkpoint, save_checkpoint
from ecgr.runs.record import Position, refuse_foreign
from ecgr.simulation.rounds import Snapshot
from support.problems import same_bits

POSITION = Position(0, "")


def state(value: float) -> State:
    return {"control": torch.full((5,), value)}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def snapshot(rounds: int, clients: StatesOnDisk) -> Snapshot:
    return Snapshot(rounds, torch.full((5,), float(rounds)), {}, {}, clients)


def saved(directory: Path, states: StatesOnDisk, *rounds: int) -> StatesOnDisk:
    """Client 0 takes part in each of these rounds, each of them a checkpoint."""
    for number in rounds:
        states = states.updated(number, {0: state(float(number))})
        save_checkpoint(directory, snapshot(number, states), POSITION)
    return states


def test_a_state_comes_back_and_an_older_index_stays_valid(tmp_path: Path) -> None:
    empty = StatesOnDisk(tmp_path / "s")
    first = empty.updated(1, {3: state(1.0), 8: state(2.0)})
    second = first.updated(2, {3: state(5.0)})
    assert (list(empty), list(first), list(second)) == ([], [3, 8], [3, 8])
    assert same_bits(second[3]["control"], state(5.0)["control"])
    assert same_bits(second[8]["control"], state(2.0)["control"])
    assert same_bits(first[3]["control"], state(1.0)["control"])
    assert second.get(4) is None
    assert 8 in second
    assert 4 not in second


def test_files_are_removed_once_no_checkpoint_needs_them(tmp_path: Path) -> None:
    """Client 1 takes part in the first round only; two generations are kept."""
    saved(tmp_path, StatesOnDisk(tmp_path / CLIENTS).updated(1, {1: state(9.0)}), 1, 2, 3, 4, 5, 6)
    kept = [(0, 5), (0, 6), (1, 1)]
    assert names(tmp_path / CLIENTS) == [f"client-000000{c}.round-000000{r}.safetensors" for c, r in kept]


def test_what_a_killed_process_left_goes_with_the_next_checkpoint(tmp_path: Path) -> None:
    states = saved(tmp_path, StatesOnDisk(tmp_path / CLIENTS), 1, 2)
    states.updated(3, {0: state(3.0)})  # and then it dies, before the checkpoint
    (tmp_path / CLIENTS / "client-0000007.round-0000003.tmp").write_bytes(b"half")
    restored = load_checkpoint(tmp_path)
    assert restored is not None
    clients = restored.snapshot.clients
    assert isinstance(clients, StatesOnDisk)
    for rounds in (3, 4):
        clients = saved(tmp_path, clients, rounds)
        kept = (rounds - 1, rounds)
        assert names(tmp_path / CLIENTS) == [f"client-0000000.round-000000{r}.safetensors" for r in kept]


@pytest.mark.parametrize("client", range(3))
@pytest.mark.parametrize("damage", ["altered", "missing"])
def test_a_damaged_state_sends_the_run_back_one_checkpoint(tmp_path: Path, damage: str, client: int) -> None:
    """The file of every client is checked, though their states are equal."""
    directory = tmp_path / "c"
    states = StatesOnDisk(directory / CLIENTS)
    for rounds in (1, 2):
        states = states.updated(rounds, {each: state(float(rounds)) for each in range(3)})
        save_checkpoint(directory, snapshot(rounds, states), POSITION)
    newest = directory / CLIENTS / f"client-000000{client}.round-0000002.safetensors"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.unlink()
    if damage == "altered":
        newest.write_bytes(content)
    with pytest.raises(IntegrityError, match=rf"client-000000{client}\.round-0000002"):
        states[client]
    restored = load_checkpoint(directory)
    assert restored is not None
    assert restored.snapshot.rounds == 1
    assert f"client-000000{client}.round-0000002" in restored.damaged[0]
    assert [float(restored.snapshot.clients[each]["control"][0]) for each in range(3)] == [1.0] * 3


def test_a_state_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file where a directory has to be")
    with pytest.raises(EnvironmentFault, match=r"cannot write .*client-0000001"):
        StatesOnDisk(tmp_path / "s").updated(1, {1: state(1.0)})


@pytest.mark.slow
def test_a_run_with_states_on_disk_has_the_bits_of_one_in_memory(tmp_path: Path) -> None:
    """Few of many take part; interrupted after a round and resumed, in two processes."""
    changes = {"algorithm.name": "scaffold", "federation.participation": 0.25, "federation.rounds": 5}
    changes |= {"partition.name": "iid", "partition.clients": 12, "partition.min_batches": 0}
    experiment = ecgr.load("quickstart", changes)
    whole = ecgr.run(experiment, tmp_path / "whole")

    class Stop(Exception):
        """The interruption."""

    def stop(row: object) -> None:
        if isinstance(row, dict) and row["round"] == 3:
            raise Stop

    with pytest.raises(Stop):
        ecgr.run(experiment, tmp_path / "parts", watch=stop)
    parts = ecgr.run(experiment, tmp_path / "parts", workers=2, resume=True)
    assert (tmp_path / "whole/model.safetensors").read_bytes() == (tmp_path / "parts/model.safetensors").read_bytes()
    assert [row["loss"] for row in whole.rounds] == [row["loss"] for row in parts.rounds]
    participants = {row["client"] for line in whole.rounds for row in line["clients"]}
    files = names(tmp_path / "whole/checkpoint" / CLIENTS)
    assert {int(name[7:14]) for name in files} == participants
    assert len(files) <= len(participants) + 3


def test_a_temporary_file_of_a_killed_process_does_not_take_a_directory(tmp_path: Path) -> None:
    """A process that was killed while it wrote run.json leaves such a file; the same command goes on there."""
    (tmp_path / ".run.json.123.tmp").touch()
    refuse_foreign(tmp_path, resume=False)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match="holds no run"):
        refuse_foreign(tmp_path, resume=False)
