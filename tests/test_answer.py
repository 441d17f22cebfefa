"""`ecgr.compare`: one function, one answer; page, JSON and terminal agree however it is called."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ecgr
from ecgr.compare.plan import METHODS, plan_comparison, seed_list
from ecgr.errors import ConfigError, DataError, EnvironmentFault, QuorumLost
from ecgr.report.table import result_rows
from ecgr.report.words import sentence
from ecgr.runs.record import RunRecord
from support.quick import quick_where
from support.runs import write_run

SMALL = {"partition.clients": 2, "data.fraction": 0.1, "federation.rounds": 3}
QUICK: dict[str, Any] = {"seeds": 2, "settings": SMALL, "tune": False, "references": False, "engine": "serial"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three methods, three seeds each."""
    for seed in range(3):
        write_run(tmp_path / "runs" / f"n{seed}", regulator="none", seed=seed)
        write_run(tmp_path / "runs" / f"e{seed}", regulator="ecgr", seed=seed)
        write_run(tmp_path / "runs" / f"s{seed}", algorithm="scaffold", regulator="none", seed=seed, gain=0.05)
    return tmp_path / "runs"


WAYS: dict[str, Callable[[Path], Any]] = {
    "a directory": lambda runs: runs,
    "its name": str,
    "directories": lambda runs: [runs / name for name in sorted(path.name for path in runs.iterdir())],
    "records": lambda runs: [RunRecord.open(path) for path in sorted(runs.iterdir())],
}


@pytest.mark.parametrize("way", quick_where(lambda way: way == "a directory", [(way,) for way in WAYS]))
def test_page_json_and_terminal_agree(runs: Path, tmp_path: Path, way: str) -> None:
    answer = ecgr.compare(WAYS[way](runs), out=tmp_path / "out")
    assert [pair.method for pair in answer.pairs] == ["fedavg+ecgr", "scaffold"]
    written = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert json.loads(answer.to_json()) == written
    page = unescape((tmp_path / "out" / "report.html").read_text())
    assert [pair["verdict"] for pair in written["pairs"]] == [pair.verdict for pair in answer.pairs]
    flowing = " ".join(str(answer).split())
    for line in (written["advice"], *written["cautions"]):
        assert line in page
        assert line in flowing
    for pair, row in zip(answer.pairs, written["pairs"], strict=True):
        assert row["sentence"] == sentence(pair)
        assert row["sentence"] in page


def test_the_summaries_give_the_same_answer_and_no_page(runs: Path) -> None:
    first = ecgr.compare(runs)
    again = ecgr.compare(runs / "summaries.json")
    assert again.to_json() == first.to_json()
    assert str(again) == str(first)
    with pytest.raises(ConfigError, match="no runs to report on"):
        again.report(runs / "other.html")
    assert first.report(runs / "new" / "page.html").is_file()
    assert max(map(len, str(first).splitlines())) <= 80
    assert "\x1b" not in str(first)


def test_two_comparisons_are_a_setting_each_however_they_were_tuned(tmp_path: Path) -> None:
    for name, lr in (("one", 0.1), ("two", 0.2)):
        methods = []
        for method, own in (("fedavg", 0.05), ("scaffold", lr)):
            place = tmp_path / name / "runs" / method
            write_run(place, algorithm=method, regulator="none", config={"optimizer": {"lr": own}})
            methods.append({"name": method, "runs": [f"runs/{method}"]})
        (tmp_path / name / "plan.json").write_text(json.dumps({"baseline": "fedavg", "methods": methods}))
    answer = ecgr.compare([tmp_path / "one", tmp_path / "two"])
    assert [(Path(pair.setting).name, pair.method, pair.seeds) for pair in answer.pairs] == [
        ("one", "scaffold", (0,)),
        ("two", "scaffold", (0,)),
    ]
    assert answer.directory is None
    assert not (tmp_path / "one" / "comparison.json").exists()


def test_each_record_is_parsed_once(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    original = Path.read_bytes

    def counted(path: Path) -> bytes:
        if path.name in {"run.json", "rounds.jsonl"}:
            read.append(path)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    ecgr.compare(runs)
    directories = [path for path in runs.iterdir() if path.is_dir()]
    assert sorted(read) == sorted(path / name for path in directories for name in ("rounds.jsonl", "run.json"))


def test_without_methods_a_stated_set_is_compared(tmp_path: Path) -> None:
    plan = plan_comparison("quickstart", out=tmp_path / "out")
    assert tuple(method.name for method in plan.methods) == (*METHODS, "alone", "pooled")
    assert plan.pairs == [(method, "fedavg") for method in METHODS[1:]]
    assert not (tmp_path / "out").exists()


def test_what_stops_every_run_is_said_once_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECGR_DATA", str(tmp_path / "empty"))
    said: list[str] = []
    with pytest.raises(DataError, match=r"^mnist: no MNIST/raw/ in .*empty; run `ecgr data fetch mnist`, [^\n]*$"):
        ecgr.compare("paper/mnist", methods=["fedavg", "fedacg"], out=tmp_path / "out", warn=said.append)
    with pytest.raises(ConfigError, match=r"^device: 'warp' cannot be used here [^\n]*$"):
        ecgr.compare("quickstart", device="warp", out=tmp_path / "out", warn=said.append)
    assert said == []
    assert not (tmp_path / "out").exists()


def test_a_method_that_diverges_is_an_answer_and_the_others_are_judged_without_it(tmp_path: Path) -> None:
    """A server step of such a length gives a model whose updates are not finite, in the second round."""
    methods = ["fedavg", "fedavg/average(lr=1e30)", "fedacg"]
    out = tmp_path / "out"
    answer = ecgr.compare("quickstart", methods=methods, out=out, **QUICK)
    lost, other = answer.pairs
    assert (lost.verdict, lost.failed, lost.difference) == ("diverged", (0, 1), None)
    assert (other.verdict, answer.family) == ("too few seeds", 2)
    assert sentence(lost) == "Diverged: fedavg/average(lr=1e+30) diverged with seeds 0, 1."
    assert "- fedavg/average(lr=1e+30) diverged: --set optimizer.lr=" in str(answer)
    page = unescape((out / "report.html").read_text())
    assert "2 runs are diverged" in page
    assert re.search(r'class="text verdict diverged"', page)
    row = next(row for row in result_rows(answer) if row.pair is not None and row.pair.verdict == "diverged")
    assert (row.seeds, row.score) == (0, None)
    assert ecgr.compare(out).to_json() == answer.to_json()
    known, again = (json.loads(each.to_json()) for each in (answer, ecgr.compare(out / "summaries.json")))
    assert {**again, "worth": known["worth"]} == known  # what a head would give, models say
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    ecgr.compare("quickstart", methods=methods, out=out, **QUICK)
    assert before == {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}, "a failure is final"
    states = {run.record.diverged is None: run.state for run in answer.runs}
    assert states == {True: "finished", False: "diverged"}


@pytest.mark.slow
def test_a_method_that_no_choice_can_train_goes_on_and_is_said_to_diverge(tmp_path: Path) -> None:
    said: list[str] = []
    tuned = {**QUICK, "tune": {"optimizer.lr": [0.01, 0.02]}}
    methods = ["fedavg", "fedavg/average(lr=1e30)"]
    answer = ecgr.compare("quickstart", methods=methods, out=tmp_path / "out", warn=said.append, **tuned)
    assert [pair.verdict for pair in answer.pairs] == ["diverged"]
    assert any("every choice diverged; it goes on with the first, optimizer.lr = 0.01" in line for line in said)
    page = unescape((tmp_path / "out" / "report.html").read_text())
    assert "Which method to use" in page and "no finished baseline" not in page
    with pytest.raises(ConfigError, match=r"^tune: no choice of hyper-parameters for fedavg\S* could be trained"):
        ecgr.compare("quickstart", methods=methods[::-1], out=tmp_path / "other", **tuned)


def test_scores_without_bound_are_a_divergence(tmp_path: Path) -> None:
    """A regression whose weights are finite and whose errors are not, where accuracies would still be numbers."""
    x, clients = torch.linspace(1, 2, 40)[:, None], [0, 1] * 20
    test = (1e6 * x, x)
    task = ecgr.Task(
        model=lambda: nn.Linear(1, 1), train=(x, x), test=test, clients=clients, loss=ecgr.MSE(), metrics=["mae"]
    )
    methods = ["fedavg", "fedavg/average(lr=1e35)"]
    answer = ecgr.compare(task, methods=methods, rounds=2, lr=0.01, out=tmp_path / "out", **{**QUICK, "settings": {}})
    assert [pair.verdict for pair in answer.pairs] == ["diverged"]
    reasons = {run.record.diverged for run in answer.runs if run.state == "diverged"}
    assert any("training diverged; a smaller optimizer.lr often helps" in str(reason) for reason in reasons), reasons


def test_a_baseline_that_diverges_is_one_line_with_the_reason(tmp_path: Path) -> None:
    """Such a learning rate gives updates that are not finite, in the first round of each run."""
    asked = {**QUICK, "settings": {**SMALL, "optimizer.lr": 1e30}}
    out, began = tmp_path / "out", []
    for _ in range(2):
        with pytest.raises(QuorumLost) as caught:
            ecgr.compare("quickstart", methods=["fedavg", "fedavg+ecgr"], out=out, **asked)
        line = (
            r"compare: the baseline diverged with seed 0 at optimizer\.lr = 1e\+30, .*set optimizer\.lr=1e\+29,"
            r" .*tune it: --tune optimizer\.lr=1e\+28,\S+ \(fedavg-none-\S+: round 1: none of 2 client updates .*"
        )
        assert re.fullmatch(line, str(caught.value))
        began.append([(path.parent.name, path.stat().st_mtime_ns) for path in out.rglob("run.json")])
    assert len(began[0]) == 1, "no run is begun after the first baseline diverged"
    assert began[0] == began[1], "and none is made again"


def test_what_is_wrong_with_the_problem_itself_is_one_line_and_not_about_runs(tmp_path: Path) -> None:
    asked = {**QUICK, "settings": {**SMALL, "partition.min_batches": 100}}
    with pytest.raises(ConfigError, match=r"^partition\.min_batches: [^\n]*$"):
        ecgr.compare("quickstart", methods=["fedavg", "fedavg+ecgr"], out=tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place, line in ((tmp_path / "file" / "in", "expected a directory, got the file"), (Path("/proc/x"), "cannot ")):
        with pytest.raises((ConfigError, EnvironmentFault), match=rf"^[^\n]*{line}[^\n]*$"):
            ecgr.compare("quickstart", seeds=1, engine="serial", out=place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_finished_takes_no_settings(runs: Path) -> None:
    with pytest.raises(ConfigError, match=r"seeds: .* is only analysed"):
        ecgr.compare(runs, seeds=3)
    with pytest.raises(ConfigError, match=r"^settings: .*; leave out settings$"):
        ecgr.compare(runs, rounds=3)


def test_a_directory_named_like_a_preset_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    with pytest.raises(ConfigError, match="nothing to compare; give two or more"):
        ecgr.compare("quickstart", methods=["fedavg"])
    with pytest.raises(DataError, match="no run in or below it"):
        ecgr.compare("./quickstart")


def test_unfinished_runs_are_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path / "a", finished=False)
    with pytest.raises(ConfigError, match="none of the runs is finished"):
        ecgr.compare(tmp_path)


@pytest.mark.parametrize("seeds", ["", "x", "1,1", "-1", "5-3", 0, -2, [], [1, 1], [-1], True, "0", [1.5]])
def test_seeds_that_do_not_fit_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigError, match="seeds: "):
        seed_list(seeds)
    assert seed_list("7,") == seed_list("7-7") == [7]


@pytest.mark.slow
def test_the_function_can_be_called_whatever_was_imported_first() -> None:
    script = "import ecgr.compare, ecgr; assert callable(ecgr.compare); print(ecgr.Answer is ecgr.compare.Answer)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
