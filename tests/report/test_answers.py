"""The answer on the page: the comparison's own, best first, in the task's words, with pictures that say the same."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ecgr.analysis.records import find_runs, group_runs, read_runs
from ecgr.analysis.verdicts import Comparison
from ecgr.compare.analyse import analyse_runs
from ecgr.config.experiment import Experiment, load
from ecgr.report.cards import cards
from ecgr.report.page import render
from ecgr.report.page_text import config_texts, cost_table
from ecgr.report.table import to_json
from support.reports import Page, page
from support.runs import write_comparison_runs, write_run


@pytest.mark.parametrize(("seeds", "gain", "verdict"), [(10, 0.1, "better"), (3, 0.0, "too few seeds")])
def test_the_answer_is_that_of_the_comparison(tmp_path: Path, seeds: int, gain: float, verdict: str) -> None:
    records = write_comparison_runs(tmp_path, seeds=seeds, gain=gain)
    pair = to_json(analyse_runs(records))["pairs"][0]
    told = page(records)
    assert pair["verdict"] == verdict
    assert pair["sentence"] in told.texts
    assert any(text.strip() == verdict for text in told.texts)
    exact = pair["metrics"]["last5"]
    dots = re.findall(r"seed (\d+): ([+-][\d.]+) points", told.text)
    assert [int(seed) for seed, _ in dots] == pair["seeds"]
    assert [float(value) for _, value in dots] == pytest.approx([100 * d for d in exact["differences"]], abs=0.05)


def test_methods_come_best_first_each_with_its_verdict(tmp_path: Path) -> None:
    drawn = cards(comparison_of(tmp_path))
    assert [card["method"] for card in drawn] == ["scaffold", "fedacg", "fedprox"]
    assert [card["class"] for card in drawn] == ["better", "better", "worse"]
    assert [card["verdict"] for card in drawn] == ["better", "better", "worse"]


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_better_is_to_the_right_of_zero_in_a_picture(tmp_path: Path, larger_is_better: bool) -> None:
    name = "auc" if larger_is_better else "mae"
    for card in cards(comparison_of(tmp_path, metric=name, larger_is_better=larger_is_better)):
        it = card["picture"]
        assert (it["mean"] > it["zero"]) == (card["class"] == "better")
        low, high = it["interval"]
        assert low <= it["mean"] <= high
        assert all(14 <= dot["x"] <= 326 for dot in it["dots"])


def comparison_of(directory: Path, **more: Any) -> Comparison:
    """Four methods with ten seeds."""
    gains = {"fedavg": 0.0, "fedacg": 0.04, "scaffold": 0.08, "fedprox": -0.06}
    for noise, (method, gain) in enumerate(gains.items(), start=1):
        for seed in range(10):
            own: dict[str, Any] = {"algorithm": method, "regulator": "none", "gain": gain, "noise": noise}
            write_run(directory / f"{method}-{seed}", seed=seed, clients=1, **own, **more)
    return analyse_runs(find_runs([directory]))


def test_a_task_with_another_metric_is_told_in_its_words(tmp_path: Path) -> None:
    told = Page(render(comparison_of(tmp_path, metric="auc", classes=())))
    seen = told.text + json.dumps(told.data)
    assert "auc" in seen
    assert "accuracy" not in seen
    assert "image" not in seen


def test_sections_without_data_are_left_out(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a", regulator="none", classes=())
    told = page([record])
    assert [link for link in told.links if link.startswith("#")][1:] == ["#answer", "#curves", "#cost", "#settings"]


def test_settings_can_be_pasted_back(tmp_path: Path) -> None:
    experiment = load("quickstart")
    record = write_run(tmp_path / "a", config=experiment.to_dict())
    (text,) = (entry["text"] for entry in config_texts(group_runs(read_runs([record]), "fedavg")))
    assert tomllib.loads(text)["regulator"] == {k: v for k, v in record.config["regulator"].items() if v is not None}
    (tmp_path / "again.toml").write_text(text)
    assert load(tmp_path / "again.toml").key() == Experiment.from_dict(record.config).key()


def test_each_method_gets_its_sentence(tmp_path: Path) -> None:
    records = [
        record
        for algorithm in ("fedavg", "scaffold")
        for record in write_comparison_runs(tmp_path / algorithm, algorithm=algorithm)
    ]
    told = page(records)
    sentences = [pair["sentence"] for pair in to_json(analyse_runs(records))["pairs"]]
    assert len(sentences) == 3
    assert all(sentence in told.texts for sentence in sentences)


def test_the_cost_of_regulation_is_its_share_of_the_clients_own_time(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a")
    rows = [json.loads(line) for line in (record.directory / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        for client in row["clients"]:
            client |= {"regulation_seconds": client["seconds"] / 8, "steps_memory": 1000.0 * client["steps"]}
    (record.directory / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cost = cost_table(group_runs(read_runs([record]), "fedavg"))
    assert cost is not None
    cells = dict(zip([column.label for column in cost.columns], cost.rows[0], strict=True))
    assert cells["share of the clients' time"].text == "12.5 %"
    assert cells["memory for steps"].text == "10 kB"
    assert not [column.label for column in cost.columns if "second" in column.label]
