"""What single commands do with unusual files and places, in this process."""

import json
import sys
from pathlib import Path

import pytest

import ecgr
from ecgr.errors import ConfigError
from ecgr.runs.runner import worker_count
from support.commands import ecgr as command_line
from support.runs import write_comparison_runs, write_run


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FILES = {
    "number.toml": "run = 3\n[grid]\nrun.seed = [0, 1]\n",
    "grid.toml": "[grid]\nrun.seed = [0, 1]\n",
    "some/empty": "",
    "run/rounds.jsonl": "null\n",
}


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("sweep number.toml", 2, "run: expected a section"),
        ("sweep grid.toml --set run.seed=3", 2, "run.seed: is in [grid]; change it there"),
        ("compare some --dry-run", 2, "--dry-run: some is only analysed, not run"),
        ("compare --tune optimizer.lr=1 --tune optimizer.lr=2", 2, "--tune: optimizer.lr is given twice"),
        ("compare --engine steam --dry-run", 2, "unknown engine 'steam'"),
        ("report runs -o .", 2, "File '.' is a directory"),
        ("partition --save .", 2, "File '.' is a directory"),
        ("partition --picture .", 2, "File '.' is a directory"),
        ("report run", 3, "run/rounds.jsonl, line 1: must hold a JSON object"),
        ("list regulator", 2, "did you mean 'regulators'"),
        ("comapre", 2, "Did you mean"),
    ],
)
def test_what_a_command_cannot_do_is_said(command: str, code: int, says: str) -> None:
    write_run(Path("run"))
    for name, text in FILES.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    done = command_line(*command.split())
    assert done.returncode == code
    assert done.stderr.count(says) == 1


def test_the_clients_of_a_task_in_a_file_are_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import ecgr\n"
        "task = ecgr.Task(model='mlp', train=([[0.0], [1.0], [2.0]], [0, 1, 1], list('aab')), test=([[0.0]], [1]))\n"
    )
    told = json.loads(command_line("partition", "mine.py:task", "--json").stdout)
    assert [(row["name"], row["samples"]) for row in told["clients"]] == [("a", 2), ("b", 1)]
    assert {each["name"]: round(each["value"], 3) for each in told["heterogeneity"]} == {
        "label skew": 0.222, "size inequality": 0.167, "feature shift": 0.816,
    }  # fmt: skip


def test_a_folder_of_methods_without_a_plan_is_compared_with_fedavg(tmp_path: Path) -> None:
    for algorithm in ("adam", "fedavg", "fedprox"):
        write_run(tmp_path / "some" / algorithm, regulator="none", algorithm=algorithm)
    assert "against fedavg" in " ".join(command_line("compare", "some").stdout.split())
    done = command_line("compare", "some", "--baseline", "scaffold")
    assert done.returncode == 2
    assert "baseline: no run of scaffold; the methods are adam, fedavg, fedprox" in done.stderr
    (tmp_path / "comparison.json").write_text("{}")
    done = command_line("compare", "comparison.json")
    assert done.returncode == 3
    assert "it holds no list of them" in done.stderr


def test_a_partition_is_shown_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    told = command_line("partition", "quickstart")
    assert told.returncode == 0
    assert "1,438 of 1,438 samples are at clients" in told.stdout
    assert "no picture" in told.stderr
    assert list(tmp_path.iterdir()) == []
    assert command_line("partition", "quickstart", "--picture", "who.png").returncode == 5


def test_runs_and_comparisons_do_not_go_into_one_another(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    write_comparison_runs(tmp_path / "both" / "runs")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="holds a single run"):
        ecgr.compare("quickstart", out=tmp_path / "runs" / "a")
    with pytest.raises(ConfigError, match="not empty"):
        ecgr.run("quickstart", out=tmp_path / "both")
    assert sorted(tmp_path.rglob("*")) == before


def test_one_method_is_nothing_to_compare_and_overwrites_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (tmp_path / "a" / "comparison.json").write_text("kept")
    with pytest.raises(ConfigError, match="nothing to compare"):
        ecgr.compare(tmp_path / "a")
    assert (tmp_path / "a" / "comparison.json").read_text() == "kept"


@pytest.mark.parametrize("workers", ["0", "-1", "ten", "", 0, True, "1.5"])
def test_workers_that_do_not_fit_are_refused(workers: int | str) -> None:
    with pytest.raises(ConfigError, match="workers: expected"):
        worker_count(workers)


def test_tables_and_methods_are_listed() -> None:
    methods = {row["notation"]: row for row in json.loads(command_line("list", "methods", "--json").stdout)}
    assert methods["fedavg"]["cost"]["up"] == 1
    assert methods["scaffold"]["stateful"]
    assert all(row["helps"] and row["what"] for row in methods.values())
    assert "correction(key=value)" in command_line("list", "methods").stdout
    (title,) = tables = json.loads(command_line("list", "regulators", "--json").stdout)
    assert (title, {row["from"] for row in tables[title]}) == ("regulators", {"ecgr"})
