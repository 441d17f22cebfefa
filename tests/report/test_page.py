"""The page says what the records say, whatever they hold, and nothing on it comes from elsewhere."""

import base64
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ecgr.analysis.records import find_runs
from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.runs.record import RunRecord
from support.hostile import HOSTILE, harmless, shown
from support.reports import page, page_about, report_on
from support.runs import write_comparison_runs, write_run

MEGABYTE = 1_000_000


def test_step_maps_are_those_of_the_record(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path, seeds=2, steps=13)
    maps = page(records).data["steps"]
    assert [run["name"] for run in maps] == ["ecgr-0", "ecgr-1"]
    for run in maps:
        expected = {(e.round, e.client): e for e in RunRecord.open(tmp_path / run["name"]).kept()}
        seen = 0
        for own in run["clients"]:
            bits = np.unpackbits(np.frombuffer(base64.b64decode(own["data"]), dtype=np.uint8))
            cells = bits[: len(own["rounds"]) * own["columns"]].reshape(len(own["rounds"]), own["columns"])
            for number, steps, row in zip(own["rounds"], own["steps"], cells, strict=True):
                entry = expected[number, own["client"]]
                assert steps == entry.steps
                assert set(np.flatnonzero(row).tolist()) == set(entry.kept)
                seen += 1
        assert seen == len(expected)


def test_curves_are_those_of_the_record(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path, seeds=1)
    for method, record in zip(page(records).data["groups"][0]["methods"], records, strict=True):
        (run,) = method["runs"]
        assert run["rounds"] == [row["round"] for row in record.rounds]
        assert run["metric"] == pytest.approx([100 * row["accuracy"] for row in record.rounds], rel=1e-4)
        assert run["loss"] == pytest.approx([row["loss"] for row in record.rounds], rel=1e-4)


@pytest.mark.slow
def test_forty_runs_of_a_hundred_rounds_and_ten_clients_stay_small(tmp_path: Path) -> None:
    for algorithm in ("fedavg", "fedprox", "fednova", "scaffold"):
        write_comparison_runs(
            tmp_path / algorithm,
            seeds=5,
            algorithm=algorithm,
            rounds=100,
            clients=10,
            steps=50,
        )
    path = report_on(find_runs([tmp_path]), tmp_path / "report.html")
    assert path.stat().st_size < 7 * MEGABYTE


def test_nothing_comes_from_elsewhere(tmp_path: Path) -> None:
    told = page(write_comparison_runs(tmp_path))
    assert all(link.startswith("#") for link in told.links)
    data, plotly, script = told.scripts
    assert "plotly.js v" in plotly[:200]
    assert not re.search(r"https?:|//[a-z]", data)
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\(|innerHTML|eval\(", script)
    assert not re.search(r"url\(|@import", "".join(told.styles))


def test_the_policy_allows_what_is_on_the_page_alone(tmp_path: Path) -> None:
    told = page(write_comparison_runs(tmp_path, seeds=1))
    directives = dict(part.strip().split(" ", 1) for part in told.policy.split(";"))
    _, *scripts = told.scripts

    def hashes(texts: list[str]) -> set[str]:
        return {f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts}

    assert directives["default-src"] == "'none'"
    assert set(directives["script-src"].split()) == hashes(scripts)
    assert set(directives["style-src"].split()) == hashes([*told.styles, ""])
    assert "unsafe-eval" not in told.policy
    assert [name for name, value in directives.items() if "unsafe-inline" in value] == ["style-src-attr"]


def hostile_runs(directory: Path, names: list[str]) -> list[RunRecord]:
    """Runs whose every free text is one of ``names``."""
    return [
        write_run(
            directory / f"{regulator}-{number}",
            regulator=regulator,
            seed=number,
            rounds=2 if number else len(names),
            name=names[number],
            classes=names,
            notes=[names[number]],
            reasons=names[number : number + 2] if number else names,
            data=names[number],
            config={"model": {"name": names[number]}, "partition": {names[number]: names[number]}},
        )
        for number in range(len(names))
        for regulator in ("none", "ecgr")
    ]


@pytest.mark.slow
def test_hostile_names_are_text(tmp_path: Path) -> None:
    assert len(HOSTILE) == 40
    hostile = page(hostile_runs(tmp_path / "hostile", list(HOSTILE)))
    plain = page(hostile_runs(tmp_path / "plain", [harmless(number) for number in range(40)]))
    assert hostile.elements == plain.elements
    for number in range(40):
        assert shown(number) in hostile.text
        assert harmless(number) in plain.text
    assert len(hostile.scripts) == len(plain.scripts) == 3


def test_the_same_records_give_the_same_page(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path)
    assert page_about(records) == page_about([RunRecord.open(record.directory) for record in records])


def test_a_run_that_is_still_going_is_drawn_named_and_not_counted(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path, seeds=2)
    going = write_run(tmp_path / "ecgr-2", seed=2, rounds=3, planned=6, finished=False)
    (going.directory / ".holder").write_text(f"{os.getpid()}\n")
    told = page([*records, going])
    assert "1 run is still going (ecgr-2, 3 of 6 rounds). Drawn in the curves, not counted." in told.text
    assert "After 6 rounds, 2 seeds," in told.text
    assert [run["state"] for run in told.data["groups"][0]["methods"][1]["runs"]] == [
        "finished",
        "finished",
        "still going",
    ]


def test_an_interrupted_run_is_called_that(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a", rounds=2, planned=6, finished=False)
    (record.directory / ".holder").write_text("not a process\n")
    told = page([record])
    assert "1 run is interrupted (a, 2 of 6 rounds)" in told.text
    assert "No run is finished, so nothing is compared yet." in told.texts
    assert "fedavg+ecgr: stands at" in told.text


def test_a_run_before_its_first_round(tmp_path: Path) -> None:
    assert "fedavg+ecgr: no round yet." in page([write_run(tmp_path / "a", rounds=0, planned=6, finished=False)]).texts


def test_runs_of_different_data_sets_are_grouped_and_warned_about(tmp_path: Path) -> None:
    records = [
        record
        for data in ("digits", "mnist")
        for record in write_comparison_runs(tmp_path / data, data=data, config={"run": {"name": data}})
    ]
    told = page(records)
    assert "These runs are of different data sets (digits, mnist)." in told.text
    assert [group["label"] for group in told.data["groups"]] == [
        "data.name=digits",
        "data.name=mnist",
    ]
    assert told.elements["svg", ("class", "viewbox", "role", "aria-label")] == 2


def test_runs_whose_files_changed_in_between_are_refused(tmp_path: Path) -> None:
    records = [write_run(tmp_path / digest, seed=seed, digest=digest) for seed, digest in enumerate(("a", "b"))]
    with pytest.raises(ConfigError, match=r"cannot be paired: they differ in data \(digits\)"):
        page(records)


def test_without_a_pair_the_page_says_what_there_is(tmp_path: Path) -> None:
    told = page([write_run(tmp_path / "a")])
    assert "fedavg+ecgr: ended at" in told.text
    assert "There is no method besides the baseline to compare with" in told.text
    assert "Did it help?" not in told.text


def test_a_baseline_that_is_not_finished_is_missing(tmp_path: Path) -> None:
    unfinished = write_run(tmp_path / "a", regulator="none", rounds=2, planned=6, finished=False)
    told = page([unfinished, write_run(tmp_path / "b")])
    assert "There is no finished baseline (fedavg) to compare with" in told.text


def test_notes_and_rejected_updates_are_shown(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a", notes=["two files were odd"], reasons=["not finite"])
    told = page([record])
    assert "two files were odd (1 run)" in told.texts
    assert "Rejected updates: 1" in told.texts
    assert "not finite" in told.texts


def test_a_run_given_twice_counts_once(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a")
    assert page_about([record, RunRecord.open(tmp_path / "." / "a")]) == page_about([record])


def test_no_runs_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run in or below it"):
        report_on(find_runs([tmp_path]), tmp_path / "report.html")
    with pytest.raises(DataError, match="nothing to report"):
        report_on([], tmp_path / "report.html")


def test_without_the_extra_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'report': pip install '.*plotly"):
        page_about([write_run(tmp_path / "a")])


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        report_on([write_run(tmp_path / "a")], tmp_path / "file" / "report.html")


@pytest.mark.slow
def test_reports_need_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    code = (
        "import sys; from pathlib import Path\n"
        "from ecgr.analysis.records import find_runs, read_runs\n"
        "from ecgr.analysis.comparison import Comparison, compare\n"
        "from ecgr.report.page import write_report\n"
        f"runs = read_runs(find_runs([{str(tmp_path)!r}]))\n"
        "pairs = compare([run.summary for run in runs]).pairs\n"
        f"write_report(Comparison('fedavg', pairs, (), (), runs), Path({str(tmp_path / 'r.html')!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
