"""The process pool: results in order, deaths survived, failures passed on, nobody left behind."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ecgr
from ecgr.config.experiment import load
from ecgr.errors import EnvironmentFault
from ecgr.simulation.engines.pool import Lost, ProcessPool
from ecgr.simulation.pickling import pack, unpack
from ecgr.simulation.prepare import prepare
from ecgr.simulation.workspace import portable
from support.jobs import Dies, Fails, Holding, Log, Square, Surroundings, Waits, answers_of, open_workspace

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def running(pid: int) -> bool:
    """Whether a process still does anything; one that has ended but that nobody has asked about does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def pids_of(pool: ProcessPool[dict[str, int]]) -> list[int]:
    return [worker.process.pid for worker in pool._workers]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool[dict[str, int]]]:
    """Two workers for all tests that leave the pool as they found it."""
    with ProcessPool(open_workspace, workers=2) as pool:
        yield pool


def test_results_come_in_the_order_of_the_jobs_and_workers_keep_their_workspace(
    pool: ProcessPool[dict[str, int]],
) -> None:
    pids = pids_of(pool)
    assert list(pool.map([])) == []
    answers: list[Any] = list(pool.map([Square(i, cost=(i * 7) % 5) for i in range(20)]))
    assert [square for square, _, _ in answers] == [i**2 for i in range(20)]
    assert {pid for _, pid, _ in answers} <= set(pids)
    assert os.getpid() not in pids
    again: list[Any] = list(pool.map([Square(i) for i in range(6)]))
    assert pids_of(pool) == pids
    assert max(jobs for _, _, jobs in again) > 3


def test_a_worker_has_the_surroundings_of_its_pool_not_those_of_the_first_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = []
    for value in ("first", "second", None):
        place = tmp_path / str(value)
        place.mkdir()
        monkeypatch.chdir(place)
        if value is None:
            monkeypatch.delenv("ECGR_CACHE")
        else:
            monkeypatch.setenv("ECGR_CACHE", value)
        with ProcessPool(open_workspace, workers=1) as pool:
            seen += [answer[:2] for answer in pool.map([Surroundings("ECGR_CACHE")]) if not isinstance(answer, Lost)]
    assert seen == [(str(v) if v else None, str(tmp_path / str(v))) for v in ("first", "second", None)]


def test_a_pool_survives_the_death_of_the_process_that_its_workers_come_from() -> None:
    with ProcessPool(open_workspace, workers=1) as pool:
        [(_, _, source)] = [answer for answer in pool.map([Surroundings("HOME")]) if not isinstance(answer, Lost)]
        if source == os.getpid():
            pytest.skip("workers of this platform come from nobody but the pool")
        os.kill(source, signal.SIGKILL)
        os.kill(pids_of(pool)[0], signal.SIGKILL)
        assert answers_of(pool, [Square(3), Square(4)]) == [9, 16]


def test_workers_import_what_their_parent_does_and_nothing_that_lies_in_the_working_directory(tmp_path: Path) -> None:
    ours, here = tmp_path / "ours", tmp_path / "here"
    shutil.copytree(Path(ecgr.__file__).parent, ours / "ecgr", ignore=shutil.ignore_patterns("__pycache__"))
    here.mkdir()
    (here / "numpy.py").write_text("import pathlib; pathlib.Path('was_run').touch(); raise RuntimeError('not numpy')")
    script = tmp_path / "script.py"
    script.write_text(
        f"import multiprocessing, os, sys; sys.path[:0] = [{str(ours)!r}, {str(TESTS)!r}]\n"
        "from ecgr.simulation.engines.pool import ProcessPool\n"
        "from support.jobs import Origin, open_workspace\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPool(open_workspace, workers=1) as pool:\n"
        "        print(*pool.map([Origin()]))\n"
        "    with multiprocessing.get_context('forkserver').Pool(1) as own:\n"
        "        print(os.getenv('PYTHONPATH'), *own.map(os.getenv, ['PYTHONPATH']))\n"
    )
    variables = {**os.environ, "PYTHONPATH": "mine"}
    done = subprocess.run(
        [sys.executable, script], cwd=here, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.splitlines(), done.stderr) == ([str(ours / "ecgr"), "mine mine"], "")
    assert not (here / "was_run").exists()


def test_a_worker_of_somebody_elses_pool_is_told_that_it_can_have_none_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFault, match="it is a worker itself"), ProcessPool(open_workspace, 1):
        pass


def test_what_all_jobs_of_a_call_hold_goes_to_each_worker_once_and_the_rest_with_each(
    pool: ProcessPool[dict[str, int]],
) -> None:
    for shared in (torch.arange(4.0), torch.ones(4)):
        jobs = [Holding(i, shared, torch.full((2,), float(i))) for i in range(8)]
        answers = [a for a in pool.map(jobs) if not isinstance(a, Lost)]
        assert [total for _, _, total in answers] == [float(shared.sum()) + 2 * i for i in range(8)]
        assert len({(pid, place) for pid, place, _ in answers}) == len({pid for pid, _, _ in answers})


def test_a_worker_that_takes_the_place_of_a_dead_one_gets_what_the_jobs_share() -> None:
    shared = torch.arange(4.0)
    with ProcessPool(open_workspace, workers=1) as pool:
        totals = []
        for answer in pool.map([Holding(i, shared, torch.full((2,), float(i))) for i in range(4)]):
            assert not isinstance(answer, Lost)
            totals.append(answer[2])
            if len(totals) == 1:
                os.kill(pids_of(pool)[0], signal.SIGKILL)
    assert totals == [6.0, 8.0, 10.0, 12.0]


def test_one_worker_starts_the_most_expensive_jobs_first_and_survives_the_death_of_others(tmp_path: Path) -> None:
    """With a single worker the order of execution is the order of cost; results still come in job order.

    Then a job that dies once is done on the second attempt, one that dies twice is lost, and the rest go on.
    """
    with ProcessPool(open_workspace, workers=1) as pool:
        log = tmp_path / "order"
        assert list(pool.map([Log(i, cost, log) for i, cost in enumerate([2, 9, 1, 5])])) == [0, 1, 2, 3]
        assert log.read_text().split() == ["1", "3", "0", "2"]
        [first] = pids_of(pool)
        once, always = tmp_path / "once", tmp_path / "always"
        lost = Lost("worker process ended with exit code -9, 2 times")
        jobs = [Dies(once, times=1), Square(3), Dies(always, times=10), Square(4)]
        assert answers_of(pool, jobs) == ["alive", 9, lost, 16]
        assert once.stat().st_size == 2
        assert always.stat().st_size == 2
        assert pids_of(pool) != [first]
        [last] = pids_of(pool)
    assert not running(last)


def answer_late(pool: ProcessPool[dict[str, int]], pipe: Path) -> None:
    """Let the job that waits on ``pipe`` answer, and wait until the answer of any worker still at work has arrived."""
    descriptor = os.open(pipe, os.O_RDWR)  # for reading too: never blocks, and keeps the byte until it is read
    os.write(descriptor, b".")
    busy = [worker.pipe for worker in pool._workers if worker.job is not None]
    if busy:
        wait(busy)
    os.close(descriptor)


def test_a_call_that_raised_or_was_not_read_to_its_end_does_not_disturb_the_next(tmp_path: Path) -> None:
    """One job is under way when another fails; its late answer must not be taken for an answer to the next call."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ProcessPool(open_workspace, workers=2) as pool:
        with pytest.raises(ArithmeticError, match="seven"):
            answers_of(pool, [Waits(pipe, cost=8), Fails("seven", cost=9)])
        answer_late(pool, pipe)
        assert answers_of(pool, [Square(10), Square(11), Square(12)]) == [100, 121, 144]
        started: Any = pool.map([Square(3, cost=9), Waits(pipe, cost=5)])
        assert next(started)[0] == 9
        started.close()
        answer_late(pool, pipe)
        assert answers_of(pool, [Square(10), Square(11), Square(12)]) == [100, 121, 144]


@pytest.mark.parametrize(
    "busy", [pytest.param(False, id="idle", marks=pytest.mark.nightly), pytest.param(True, id="in the middle of a job")]
)
def test_workers_end_when_their_parent_is_killed(tmp_path: Path, busy: bool) -> None:
    """A job kills the pool's own process. The workers hold its standard output, so reading it ends when they have."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    jobs = f"NeverEnds(Path({str(pipe)!r})), KillsParent(pipe=Path({str(pipe)!r}))" if busy else "KillsParent()"
    script = (
        "from pathlib import Path\n"
        "from ecgr.simulation.engines.pool import ProcessPool\n"
        "from support.jobs import KillsParent, NeverEnds, open_workspace\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPool(open_workspace, workers=2) as pool:\n"
        "        print(*(worker.process.pid for worker in pool._workers), flush=True)\n"
        f"        list(pool.map([{jobs}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert done.returncode == -9
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert not any(running(pid) for pid in pids)


# On the way to another process or machine


def test_mapped_arrays_travel_beyond_this_machine_and_stay_on_it_otherwise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(1600, 40)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", inputs)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r")
    targets = (inputs[:, 0] > 0).astype(np.int64)
    task = ecgr.Task(
        model=lambda: torch.nn.Linear(40, 2), train=(mapped, targets), test=(inputs[:8], targets[:8]), clients=2
    )
    problem = prepare(load(task, {"federation.batch_size": 8}), task.load())
    here, remote = pack(portable(problem)), pack(portable(problem, remote=True))
    assert len(here) < inputs.nbytes < len(remote)  # the file's place alone
    (tmp_path / "inputs.npy").unlink()
    assert np.array_equal(unpack(remote)().train.inputs.numpy(), inputs)


def test_what_is_shared_is_named_and_not_packed_again() -> None:
    shared, own = (torch.zeros(10_000), {"buffer": torch.ones(2)}), torch.ones(3)
    content = pack({"params": shared[0], "buffers": shared[1], "own": own}, shared)
    assert len(content) < 1_000
    held = unpack(pack(shared))
    found = unpack(content, held)
    assert found["params"] is held[0]
    assert found["buffers"] is held[1]
    assert torch.equal(found["own"], own)
