"""The page says what records and comparison say, whatever they hold, and nothing on it comes from elsewhere."""

import base64
import hashlib
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.records import find_runs, group_runs, read_runs
from ecgr.compare.analyse import analyse_runs
from ecgr.config.experiment import Experiment, load
from ecgr.errors import ConfigError, DataError, EnvironmentFault
from ecgr.report.page import render
from ecgr.report.page_data import kept_array, step_maps
from ecgr.report.page_text import config_texts, cost_table
from ecgr.report.picture import ends_of
from ecgr.report.table import to_json
from ecgr.runs.record import RunRecord
from ecgr.simulation.kept import Kept
from support.hostile import HOSTILE, harmless, shown
from support.reports import Page, page, page_about, report_on
from support.runs import write_comparison_runs, write_run

MEGABYTE = 1_000_000
UNFINISHED: dict[str, Any] = {"planned": 6, "finished": False}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """Ten seeds of the baseline and of a method that is ahead."""
    return write_comparison_runs(tmp_path_factory.mktemp("runs"), seeds=10, gain=0.1, steps=13)


@pytest.fixture(scope="module")
def told(records: list[RunRecord]) -> Page:
    return page(records)


class TestAnswer:
    def test_it_is_that_of_the_comparison(self, records: list[RunRecord], told: Page) -> None:
        written = to_json(analyse_runs(records))
        (pair,) = written["pairs"]
        assert pair["verdict"] == "ahead"
        assert {written["advice"], *written["cautions"]} <= set(told.texts)
        assert any(text.strip() == "ahead" for text in told.texts)
        assert pair["sentence"] in told.text
        assert {"6 rounds", "not tuned", "learning rate 0.01"} <= set(told.texts[: told.texts.index("The answer")])

    def test_each_method_has_the_round_in_which_it_gets_to_the_baselines_end(
        self, records: list[RunRecord], told: Page
    ) -> None:
        (pair,) = to_json(analyse_runs(records))["pairs"]
        (group,) = told.data["groups"]
        rounds = [pair["speed"]["rounds"][side] for side in ("baseline", "method")]
        assert [method["arrives"][0] for method in group["methods"]] == pytest.approx(rounds)
        assert group["methods"][0]["arrives"][1] == pytest.approx(100 * pair["speed"]["target"], rel=1e-4)

    @pytest.mark.parametrize(("metric", "larger_is_better"), [("auc", True), ("mae", False)])
    def test_better_is_to_the_right_in_the_picture_and_the_metric_is_told_in_its_words(
        self, tmp_path: Path, metric: str, larger_is_better: bool
    ) -> None:
        found = four_methods(tmp_path, metric=metric, larger_is_better=larger_is_better, classes=())
        (ends,) = ends_of(found)
        assert {mark.label for mark in ends.marks} == {"fedavg", "scaffold", "fedacg", "fedprox"}
        for mark in ends.marks[1:]:
            assert (ends.share(mark.score) > ends.share(ends.baseline)) == (mark.kind in ("better", "ahead"))
            assert mark.interval is not None
            assert mark.interval[0] <= mark.score <= mark.interval[1]
        told = Page(render(found))
        seen = told.text + json.dumps(told.data)
        assert metric in seen
        assert not {"accuracy", "image"} & set(re.findall("[a-z]+", seen))

    def test_settings_are_grouped_and_warned_about_where_they_are_other_data(self, tmp_path: Path) -> None:
        for data in ("digits", "mnist"):
            write_comparison_runs(tmp_path / data, data=data, config={"run": {"name": data}})
        told = page(find_runs([tmp_path]))
        assert "These runs are of different data sets (digits, mnist)." in told.text
        assert [group["label"] for group in told.data["groups"]] == ["data.name=digits", "data.name=mnist"]
        assert told.elements["svg", ("class", "viewbox", "role", "aria-label")] == 2


def four_methods(directory: Path, **more: Any) -> Comparison:
    """Four methods with ten seeds."""
    gains = {"fedavg": 0.0, "fedacg": 0.04, "scaffold": 0.08, "fedprox": -0.06}
    for noise, (method, gain) in enumerate(gains.items(), start=1):
        for seed in range(10):
            own: dict[str, Any] = {"algorithm": method, "regulator": "none", "gain": gain, "noise": noise}
            write_run(directory / f"{method}-{seed}", seed=seed, clients=1, **own, **more)
    return analyse_runs(find_runs([directory]))


class TestRecords:
    def test_curves_are_theirs(self, records: list[RunRecord], told: Page) -> None:
        drawn = [run for method in told.data["groups"][0]["methods"] for run in method["runs"]]
        for run, record in zip(drawn, records, strict=True):
            assert run["rounds"] == [row["round"] for row in record.rounds]
            assert run["metric"] == pytest.approx([100 * row["accuracy"] for row in record.rounds], rel=1e-4)
            assert run["loss"] == pytest.approx([row["loss"] for row in record.rounds], rel=1e-4)

    def test_kept_steps_are_theirs(self, records: list[RunRecord], told: Page) -> None:
        kept = {record.directory.name: record.kept() for record in records}
        assert [run["name"] for run in told.data["steps"]] == [f"ecgr-{seed}" for seed in range(10)]
        for run in told.data["steps"]:
            expected = {(entry.round, entry.client): entry for entry in kept[run["name"]]}
            for own in run["clients"]:
                bits = np.unpackbits(np.frombuffer(base64.b64decode(own["data"]), dtype=np.uint8))
                cells = bits[: len(own["rounds"]) * own["columns"]].reshape(len(own["rounds"]), own["columns"])
                for number, steps, row in zip(own["rounds"], own["steps"], cells, strict=True):
                    entry = expected.pop((number, own["client"]))
                    assert (steps, set(np.flatnonzero(row).tolist())) == (entry.steps, set(entry.kept))
            assert not expected

    def test_settings_can_be_pasted_back(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a", config=load("quickstart", {"regulator.name": "ecgr"}).to_dict())
        (text,) = (entry["text"] for entry in config_texts(group_runs(read_runs([record]), "fedavg")[""]))
        regulator = {key: value for key, value in record.config["regulator"].items() if value is not None}
        assert tomllib.loads(text)["regulator"] == regulator
        (tmp_path / "again.toml").write_text(text)
        assert load(tmp_path / "again.toml").key() == Experiment.from_dict(record.config).key()

    def test_the_cost_of_regulation_is_its_share_of_the_clients_own_time(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a")
        rows = [json.loads(line) for line in (record.directory / "rounds.jsonl").read_text().splitlines()]
        for row in rows:
            for client in row["clients"]:
                client |= {"regulation_seconds": client["seconds"] / 8, "steps_memory": 1000.0 * client["steps"]}
        (record.directory / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        cost = cost_table(group_runs(read_runs([record]), "fedavg")[""])
        assert cost is not None
        cells = {column.label: cell.text for column, cell in zip(cost.columns, cost.rows[0], strict=True)}
        assert (cells["share of the clients' time"], cells["memory for steps"]) == ("12.5 %", "10 kB")
        assert not [label for label in cells if "second" in label]


WHAT_THERE_IS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "interrupted": (
        lambda path: write_run(path / "a", rounds=2, **UNFINISHED),
        [
            "1 run is interrupted (a, 2 of 6 rounds)",
            "No run is finished, so nothing is compared yet.",
            "fedavg+ecgr: stands at",
        ],
    ),
    "before its first round": (
        lambda path: write_run(path / "a", rounds=0, **UNFINISHED),
        ["fedavg+ecgr: no round yet."],
    ),
    "one method": (
        lambda path: write_run(path / "a"),
        ["fedavg+ecgr: ended at", "There is no method besides the baseline to compare with"],
    ),
    "the baseline is not finished": (
        lambda path: (write_run(path / "a", regulator="none", rounds=2, **UNFINISHED), write_run(path / "b")),
        ["There is no finished baseline (fedavg) to compare with"],
    ),
    "notes and rejected updates": (
        lambda path: write_run(path / "a", notes=["two files were odd"], reasons=["not finite"]),
        ["two files were odd (1 run)", "Rejected updates: 1", "not finite"],
    ),
}


@pytest.mark.parametrize("case", WHAT_THERE_IS)
def test_the_page_says_what_there_is(tmp_path: Path, case: str) -> None:
    make, lines = WHAT_THERE_IS[case]
    make(tmp_path)
    text = page(find_runs([tmp_path])).text
    assert [line for line in lines if line not in text] == []


def test_a_run_that_is_still_going_is_drawn_named_and_not_counted(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path, seeds=2)
    going = write_run(tmp_path / "ecgr-2", seed=2, rounds=3, **UNFINISHED)
    (going.directory / ".holder").write_text(f"{os.getpid()}\n")
    told = page([*records, going])
    assert "1 run is still going (ecgr-2, 3 of 6 rounds). Drawn in the curves, not counted." in told.text
    assert "After 6 rounds, 2 seeds," in told.text
    states = [run["state"] for run in told.data["groups"][0]["methods"][1]["runs"]]
    assert states == ["finished", "finished", "still going"]


def test_sections_without_data_are_left_out(tmp_path: Path) -> None:
    told = page([write_run(tmp_path / "a", regulator="none", classes=())])
    assert [link for link in told.links if link.startswith("#")][1:] == ["#answer", "#curves", "#cost", "#settings"]


def test_the_same_records_give_the_same_page_however_often_they_are_given(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path)
    again = [RunRecord.open(tmp_path / "." / record.directory.name) for record in records]
    assert page_about(records) == page_about(again) == page_about([*records, again[0]])


def test_what_cannot_be_shown_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no run in or below it"):
        page(find_runs([tmp_path / "empty"]))
    with pytest.raises(DataError, match="nothing to report"):
        page([])
    changed = [write_run(tmp_path / digest, seed=seed, digest=digest) for seed, digest in enumerate(("a", "b"))]
    with pytest.raises(ConfigError, match=r"cannot be paired: they differ in data \(digits\)"):
        page(changed)
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot write"):
        report_on(changed[:1], tmp_path / "file" / "report.html")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(EnvironmentFault, match=r"extra 'report': pip install '.*plotly"):
        page(changed[:1])


class TestSafety:
    def test_nothing_comes_from_elsewhere(self, told: Page) -> None:
        assert all(link.startswith("#") for link in told.links)
        data, plotly, script = told.scripts
        assert "plotly.js v" in plotly[:200]
        assert not re.search(r"https?:|//[a-z]", data)
        assert not re.search(r"https?:|fetch|XMLHttpRequest|import\(|innerHTML|eval\(", script)
        assert not re.search(r"url\(|@import", "".join(told.styles))

    def test_the_policy_allows_what_is_on_the_page_alone(self, told: Page) -> None:
        directives = dict(part.strip().split(" ", 1) for part in told.policy.split(";"))

        def hashes(texts: list[str]) -> set[str]:
            return {f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts}

        assert directives["default-src"] == "'none'"
        assert set(directives["script-src"].split()) == hashes(told.scripts[1:])
        assert set(directives["style-src"].split()) == hashes([*told.styles, ""])
        assert "unsafe-eval" not in told.policy
        assert [name for name, value in directives.items() if "unsafe-inline" in value] == ["style-src-attr"]

    @pytest.mark.slow
    def test_hostile_names_are_text(self, tmp_path: Path) -> None:
        assert len(HOSTILE) == 40
        hostile = page(hostile_runs(tmp_path / "hostile", list(HOSTILE)))
        plain = page(hostile_runs(tmp_path / "plain", [harmless(number) for number in range(40)]))
        assert hostile.elements == plain.elements
        for number in range(40):
            assert shown(number) in hostile.text
            assert harmless(number) in plain.text
        assert len(hostile.scripts) == len(plain.scripts) == 3


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


class TestStepMaps:
    def test_what_does_not_fit_the_budget_is_left_out_from_the_end(self) -> None:
        """A map has 150 rows of 130 bits: 2,438 bytes."""
        runs = [random_entries(rounds=150, clients=4, steps=130, seed=seed) for seed in range(3)]
        assert [len(each) for each in step_maps(runs, budget=15_000)] == [4, 2, 0]

    def test_there_is_no_step_after_a_clients_last(self) -> None:
        assert np.isnan(kept_array([Kept(1, 0, 40, (0,)), Kept(2, 0, 20, (1,))])[1, 20:]).all()

    @pytest.mark.nightly
    def test_forty_runs_of_a_hundred_rounds_and_ten_clients_stay_small(self, tmp_path: Path) -> None:
        for algorithm in ("fedavg", "fedprox", "fednova", "scaffold"):
            write_comparison_runs(tmp_path / algorithm, seeds=5, algorithm=algorithm, rounds=100, clients=10, steps=50)
        path = report_on(find_runs([tmp_path]), tmp_path / "report.html")
        assert path.stat().st_size < 7 * MEGABYTE


def random_entries(rounds: int, clients: int, steps: int, seed: int = 0) -> list[Kept]:
    rng = np.random.default_rng(seed)
    return [
        Kept(r, c, steps, tuple(rng.choice(steps, size=max(1, steps // 2), replace=False).tolist()))
        for r in range(1, rounds + 1)
        for c in range(clients)
    ]
