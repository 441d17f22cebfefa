"""What the command says to bad input: the documented exit code, one clear line, and nothing written."""

import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

import ecgr as package
from ecgr.errors import EnvironmentFault
from support.commands import ecgr, ecgr_process, files_below

BAD_CONFIG = [
    (("regulator.beta=1.5",), ("regulator.beta: expected", "got 1.5", "at most 1")),
    (("algorithm.name=fedprox", "algorithm.mue=1"), ("algorithm.mue", "did you mean 'mu'")),
    (("federation.rounds=ten",), ("federation.rounds: expected", "got 'ten'", "whole number")),
    (("partition.clients=5000",), ("partition.clients: 5000 clients cannot share 1438",)),
    (("data.name=[1]",), ("data.name",)),
    (("regulator=5",), ("regulator", "section.key")),
    (("nonsense",), ("nonsense", "KEY=VALUE")),
]


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sets(*assignments: str) -> list[str]:
    return [part for assignment in assignments for part in ("--set", assignment)]


def assert_refused(done: "subprocess.CompletedProcess[str]", code: int, *parts: str) -> None:
    """The exit code, one line on stderr that holds every part, nothing on stdout, no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("ecgr: ")
    assert all(part in lines[0] for part in parts), lines[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("assignments", "parts"), BAD_CONFIG, ids=lambda value: ",".join(value) if value else "")
def test_a_bad_config_is_one_line_and_exit_two_and_nothing_is_written(
    tmp_path: Path, assignments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = ecgr("run", "quickstart", *sets(*assignments), "--out", "out")
    assert_refused(done, 2, *parts)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_config_is_answered_before_torch_is_imported() -> None:
    """Every bad config of the list, in one process through the command's own entry point."""
    script = (
        "import sys, io, contextlib\n"
        "from ecgr.cli import main\n"
        f"for assignments in {[list(a) for a, _ in BAD_CONFIG]!r}:\n"
        "    sys.argv = ['ecgr', 'run', 'quickstart']\n"
        "    for a in assignments: sys.argv += ['--set', a]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 2, (assignments, end.code)\n"
        "    assert 'torch' not in sys.modules, assignments\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "done\n", done.stderr


def test_a_bad_config_is_answered_within_a_second(tmp_path: Path) -> None:
    """Best of three, in the process itself, from its start to the exit; its own time, whatever else is running."""
    script = (
        "import time\n"
        "import sys; sys.argv = ['ecgr', 'run', '--set', 'regulator.beta=1.5']\n"
        "from ecgr.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(time.process_time())\n"
    )
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 1.0


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", "--bogus"), ("--bogus",)),
        (("run", "--workers", "ten"), ("--workers", "whole number", "auto")),
        (("run", "--workers", "0"), ("workers", "at least 1")),
        (("frobnicate",), ("frobnicate",)),
        (("run", "quickstart", "more"), ("more",)),
        (("run", "quickstrat"), ("quickstart",)),
        (("run", "--set"), ("--set",)),
    ],
)
def test_wrong_usage_is_one_line_and_exit_two(
    tmp_path: Path, arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    assert_refused(ecgr(*arguments), 2, *parts)
    assert list(tmp_path.iterdir()) == []


def test_without_arguments_it_says_what_to_do(tmp_path: Path) -> None:
    done = ecgr_process(cwd=tmp_path)
    assert "ecgr demo" in done.stdout
    assert "this is a bug" not in done.stderr
    assert done.returncode in {0, 2}


def test_debug_shows_the_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    done = ecgr("--debug", "run", *sets("regulator.beta=1.5"))
    assert done.returncode == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "ConfigError" in done.stderr


def test_control_characters_are_shown_and_not_sent_to_the_terminal(tmp_path: Path) -> None:
    done = ecgr("run", *sets("data.name=\x1b[31mred"))
    assert_refused(done, 2, "data.name")
    assert "\x1b" not in done.stderr


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


@pytest.mark.slow
@pytest.mark.parametrize("held", [(), ("run.json",)], ids=["just begun", "under way"])
def test_a_directory_in_use_is_exit_five_and_untouched(tmp_path: Path, held: tuple[str, ...]) -> None:
    """A run that is under way holds the lock and has written run.json already: that is "in use", not "holds a run"."""
    folder = tmp_path / "busy"
    folder.mkdir()
    for name in held:
        (folder / name).write_text("{}")
    (folder / ".holder").write_text("4711\n")
    with FileLock(folder / ".lock"):
        before = files_below(folder)
        done = ecgr_process("run", "quickstart", *sets("federation.rounds=1"), "--out", "busy", cwd=tmp_path)
        assert files_below(folder) == before
    assert_refused(done, 5, "busy", "in use", "4711")


def test_a_directory_in_use_is_known_before_any_data_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """THREATS: the second run ends within a second; loading data and torch alone takes longer than that."""
    from ecgr.tasks.data import Digits

    def loaded(self: Digits) -> None:
        raise AssertionError("the data was loaded first")

    monkeypatch.setattr(Digits, "load", loaded)
    folder = tmp_path / "busy"
    folder.mkdir()
    with FileLock(folder / ".lock"), pytest.raises(EnvironmentFault, match="in use"):
        package.run(package.load("quickstart"), out=folder)


def test_a_directory_that_cannot_be_made_is_exit_five(tmp_path: Path) -> None:
    done = ecgr("run", "quickstart", *sets("federation.rounds=1"), "--out", "/proc/nothing/here")
    assert_refused(done, 5, "/proc/nothing/here")
    assert list(tmp_path.iterdir()) == []


# Data that cannot be trained on


def test_a_client_without_data_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = ecgr(
        "run",
        *sets("partition.min_batches=0", "partition.alpha=0.001", "partition.clients=40"),
        "--out",
        "o",
    )
    assert_refused(done, 2, "client", "has no data", "partition.min_batches", "skip")
    assert list(tmp_path.iterdir()) == []


def test_a_client_without_data_is_skipped_where_the_config_says_so(tmp_path: Path) -> None:
    experiment = package.load(
        "quickstart",
        {
            "partition.min_batches": 0,
            "partition.alpha": 0.001,
            "partition.clients": 40,
            "partition.empty": "skip",
            "federation.rounds": 1,
            "data.fraction": 0.3,
        },
    )
    record = package.run(experiment, out=tmp_path / "skip")
    sizes = [sum(row) for row in record.manifest["partition"]]
    assert 0 in sizes
    [row] = record.rounds
    assert [c["client"] for c in row["clients"]] == [i for i, n in enumerate(sizes) if n]


def test_a_last_batch_of_one_sample_is_refused_where_batchnorm_cannot_take_it(tmp_path: Path) -> None:
    """1,438 samples over two clients are 719 each: batches of 359 leave one over. ResNet-18 shrinks 28x28 to 1x1."""
    options = ("partition.name=iid", "partition.clients=2", "partition.min_batches=1", "federation.batch_size=359")
    done = ecgr("run", *sets(*options, "model.name=resnet18", "federation.rounds=1"), "--out", "o")
    assert_refused(done, 2, "federation", "client 0", "719", "more than 1 value per channel", "merge", "drop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rule", ["merge", "drop"])
def test_the_advice_about_the_last_batch_helps(rule: str) -> None:
    from ecgr.simulation.prepare import prepare

    experiment = package.load(
        {
            "partition": {"name": "iid", "clients": 2, "min_batches": 1},
            "federation": {"batch_size": 359, "last_batch": rule},
            "model": {"name": "resnet18"},
        }
    )
    assert len(prepare(experiment, experiment.source.load()).partition) == 2


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = ecgr("run", "--device", "warp", "--out", "o")
    assert_refused(done, 2, "device", "warp")
    assert list(tmp_path.iterdir()) == []


# Training that cannot be used


@pytest.mark.slow
def test_training_that_diverges_everywhere_is_exit_six_and_names_round_client_and_reason(tmp_path: Path) -> None:
    done = ecgr("run", *sets("optimizer.lr=1e30", "federation.rounds=2"), "--out", "o")
    assert_refused(done, 6, "round 1", "client 0", "nonfinite", "optimizer.lr")
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_every_problem_has_its_own_line(tmp_path: Path) -> None:
    done = ecgr("run", *sets("regulator.beta=1.5", "federation.rounds=0", "data.name=minst"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []
