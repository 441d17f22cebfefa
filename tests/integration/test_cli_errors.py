"""What the command says to bad input: the documented exit code, one clear line, and nothing written."""

import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import ecgr as package
from ecgr.simulation.prepare import prepare
from ecgr.tasks.data import Digits
from support.commands import ecgr, files_below, sets

BAD_CONFIG = [
    (("regulator.beta=1.5",), ("regulator.beta: expected", "got 1.5", "at most 1")),
    (("algorithm.name=fedprox", "algorithm.mue=1"), ("algorithm.mue", "did you mean 'mu'")),
    (("federation.rounds=ten",), ("federation.rounds: expected", "got 'ten'", "whole number")),
    (("partition.clients=5000",), ("partition.clients: 5000 clients cannot share 1438",)),
    (("data.name=[1]",), ("data.name",)),
    (("regulator=5",), ("regulator", "section.key")),
    (("nonsense",), ("nonsense", "KEY=VALUE")),
]
BAD_DATA = [
    (
        ("partition.min_batches=0", "partition.alpha=0.001", "partition.clients=40"),
        ("client", "has no data", "partition.min_batches", "skip"),
    ),
    (
        (
            *("partition.name=iid", "partition.clients=2", "partition.min_batches=1", "federation.batch_size=359"),
            *("model.name=resnet18", "federation.rounds=1"),
        ),
        ("federation", "client 0", "719", "more than 1 value per channel", "merge", "drop"),
    ),
]
"""Clients without samples, and 719 samples of a client in batches of 359, which leave one over for BatchNorm."""


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def assert_refused(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """The exit code, one line on stderr that holds every part, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("ecgr: ")
    assert all(part in lines[0] for part in parts), lines[0]
    assert "Traceback" not in done.stderr


USAGE = [
    (("run", "--bogus"), ("--bogus",)),
    (("run", "--workers", "ten"), ("--workers", "whole number", "auto")),
    (("run", "--workers", "0"), ("workers", "at least 1")),
    (("frobnicate",), ("frobnicate",)),
    (("run", "quickstart", "more"), ("more",)),
    (("run", "quickstrat"), ("quickstart",)),
    (("run", "--set"), ("--set",)),
    (("run", "--device", "warp", "--out", "o"), ("device", "warp")),
    (("compare", "--seeds", "0,x", "--out", "o"), ("--seeds: ",)),
    (("compare", "--regulators", "none,ecgr", "--out", "o"), ("--regulators",)),
    (("sweep", "quickstart", "--out", "o"), ("[grid]",)),
    (("run", *sets("data.name=\x1b[31mred")), ("data.name",)),
    *((("run", "quickstart", *sets(*settings), "--out", "o"), parts) for settings, parts in [*BAD_CONFIG, *BAD_DATA]),
]


@pytest.mark.parametrize(("arguments", "parts"), USAGE, ids=" ".join)
def test_what_is_wrong_is_one_line_and_exit_two_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    """Control characters are shown and not sent to the terminal."""
    done = ecgr(*arguments)
    assert_refused(done, 2, *parts)
    assert "\x1b" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bad_config_is_answered_within_a_second_and_before_torch_is_imported() -> None:
    """Its own time from its start to the end of the first, best of three; then every bad config of the list."""
    script = (
        "import sys, time\n"
        "from ecgr.cli import main\n"
        f"for assignments in {[sets(*a) for a, _ in BAD_CONFIG]!r}:\n"
        "    sys.argv = ['ecgr', 'run', 'quickstart', *assignments]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 2, (assignments, end.code)\n"
        "    assert 'torch' not in sys.modules, assignments\n"
        "    print(time.process_time())\n"
    )
    times = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
        assert len(done.stdout.splitlines()) == len(BAD_CONFIG), done.stderr
        times.append(float(done.stdout.split()[0]))
    assert min(times) < 1.0


def test_without_arguments_it_says_what_to_do(tmp_path: Path) -> None:
    done = ecgr()
    assert "ecgr demo" in done.stdout
    assert "this is a bug" not in done.stderr
    assert done.returncode in {0, 2}


def test_debug_shows_the_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    done = ecgr("--debug", "run", *sets("regulator.beta=1.5"))
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "ConfigError" in done.stderr


# Directories


def test_a_directory_that_holds_another_run_is_refused_and_untouched(tmp_path: Path) -> None:
    """Finished or not, and whatever else lies there."""
    for name, content in [
        ("finished", ("run.json", "model.safetensors")),
        ("partial", ("run.json",)),
        ("alien", ("a.txt",)),
    ]:
        folder = tmp_path / name
        folder.mkdir()
        for file in content:
            (folder / file).write_text("{}")
        before = files_below(folder)
        done = ecgr("run", "quickstart", "--out", name)
        assert_refused(done, 2, "--out", name)
        assert files_below(folder) == before
    (tmp_path / "file").write_text("x")
    assert_refused(ecgr("run", "quickstart", "--out", "file"), 2, "file")


@pytest.mark.parametrize("held", [(), ("run.json",)], ids=["just begun", "under way"])
def test_a_directory_in_use_is_exit_five_and_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: tuple[str, ...]
) -> None:
    """A run that is under way holds the lock and has written run.json already: that is "in use", not "holds a run".

    It is known before any data is loaded (THREATS): the second run ends within a second.
    """

    def loaded(self: Digits) -> None:
        raise AssertionError("the data was loaded first")

    monkeypatch.setattr(Digits, "load", loaded)
    folder = tmp_path / "busy"
    folder.mkdir()
    for name in held:
        (folder / name).write_text("{}")
    (folder / ".holder").write_text("4711\n")
    with FileLock(folder / ".lock"):
        before = files_below(folder)
        done = ecgr("run", "quickstart", *sets("federation.rounds=1"), "--out", "busy")
        assert files_below(folder) == before
    assert_refused(done, 5, "busy", "in use", "4711")


def test_a_directory_that_cannot_be_made_is_exit_five(tmp_path: Path) -> None:
    done = ecgr("run", "quickstart", *sets("federation.rounds=1"), "--out", "/proc/nothing/here")
    assert_refused(done, 5, "/proc/nothing/here")
    assert list(tmp_path.iterdir()) == []


# Data that cannot be trained on


def test_a_client_without_data_is_skipped_where_the_config_says_so(tmp_path: Path) -> None:
    alone = {"partition.min_batches": 0, "partition.alpha": 0.001, "partition.clients": 40, "partition.empty": "skip"}
    settings = {**alone, "federation.rounds": 1, "data.fraction": 0.3}
    record = package.run("quickstart", tmp_path / "skip", settings=settings)
    sizes = [sum(row) for row in record.manifest["partition"]]
    assert 0 in sizes
    [row] = record.rounds
    assert [c["client"] for c in row["clients"]] == [i for i, n in enumerate(sizes) if n]


@pytest.mark.parametrize("rule", ["merge", "drop"])
def test_the_advice_about_the_last_batch_helps(rule: str) -> None:
    partition = {"name": "iid", "clients": 2, "min_batches": 1}
    federation = {"batch_size": 359, "last_batch": rule}
    experiment = package.load({"partition": partition, "federation": federation, "model": {"name": "resnet18"}})
    assert len(prepare(experiment, experiment.source.load()).partition) == 2


# Training that cannot be used


def test_training_that_diverges_everywhere_is_exit_six_and_names_round_client_and_reason(tmp_path: Path) -> None:
    done = ecgr("run", *sets("optimizer.lr=1e30", "federation.rounds=2"), "--out", "o")
    assert_refused(done, 6, "round 1", "client 0", "nonfinite", "optimizer.lr")
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_every_problem_has_its_own_line(tmp_path: Path) -> None:
    done = ecgr("run", *sets("regulator.beta=1.5", "federation.rounds=0", "data.name=minst"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []
