"""The answer on the page: the comparison's own, best first, in the task's words, with pictures that say the same."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ecgr.analysis.arms import compare_finished, group_runs
from ecgr.analysis.collect import Run, find_runs, read_runs, summarise
from ecgr.analysis.comparison import compare
from ecgr.config.experiment import Experiment, load
from ecgr.report import presentation
from ecgr.report.page.answers import answers
from ecgr.report.page.cost import cost_table
from ecgr.report.page.facts import config_texts
from ecgr.report.page.html import render
from ecgr.report.sentences import best_first
from support.pages import Page, page
from support.runs import write_comparison_runs, write_run


@pytest.mark.parametrize(("seeds", "gain", "verdict"), [(10, 0.1, "better"), (3, 0.0, "too few seeds")])
def test_the_answer_is_that_of_the_comparison(tmp_path: Path, seeds: int, gain: float, verdict: str) -> None:
    records = write_comparison_runs(tmp_path, seeds=seeds, gain=gain)
    pair = presentation.to_json(compare(summarise(records)))["pairs"][0]
    told = page(records)
    assert pair["verdict"] == verdict
    assert pair["sentence"] in told.texts
    assert any(text.strip() == verdict for text in told.texts)
    exact = pair["metrics"]["last5"]
    dots = re.findall(r"seed (\d+): ([+-][\d.]+) points", told.text)
    assert [int(seed) for seed, _ in dots] == pair["seeds"]
    assert [float(value) for _, value in dots] == pytest.approx([100 * d for d in exact["differences"]], abs=0.005)


def test_methods_come_best_first_each_with_its_cause(tmp_path: Path) -> None:
    comparison = compare_finished(method_runs(tmp_path), "fedavg", "method")
    cards = answers(comparison)
    assert [card["method"] for card in cards] == ["scaffold", "fedacg", "fedprox"]
    assert [card["class"] for card in cards] == ["better", "better", "worse"]
    assert [card["verdict"] for card in cards] == [
        f"{pair.verdict}, by {' and '.join(pair.causes)}" if pair.cause else pair.verdict
        for pair in best_first(comparison.pairs)
    ]
    assert any(pair.cause for pair in comparison.pairs)


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_better_is_to_the_right_of_zero_in_a_picture(tmp_path: Path, larger_is_better: bool) -> None:
    name = "auc" if larger_is_better else "mae"
    runs = method_runs(tmp_path, metric=name, larger_is_better=larger_is_better)
    for card in answers(compare_finished(runs, "fedavg", "method")):
        it = card["picture"]
        assert (it["mean"] > it["zero"]) == (card["class"] == "better")
        low, high = it["interval"]
        assert low <= it["mean"] <= high
        assert all(14 <= dot["x"] <= 326 for dot in it["dots"])


def method_runs(directory: Path, **more: Any) -> list[Run]:
    """Four methods with ten seeds, and the baseline at other lengths of the server's step."""
    for noise, (algorithm, gain, norm) in enumerate(
        (("fedavg", 0.0, 0.5), ("fedacg", 0.04, 0.9), ("scaffold", 0.08, 0.45), ("fedprox", -0.06, 0.5)), start=1
    ):
        for seed in range(10):
            place = directory / "arms" / f"{algorithm}-{seed}"
            own: dict[str, Any] = {
                "algorithm": algorithm,
                "regulator": "none",
                "gain": gain,
                "step_norm": norm,
                "noise": noise,
            }
            write_run(place, seed=seed, clients=1, **own, **more)
    for factor, gain in ((0.7, -0.03), (2.0, 0.03)):
        for seed in range(10):
            place = directory / "length" / f"{factor}-{seed}"
            own = {"regulator": "none", "gain": gain, "step_norm": 0.5 * factor, "noise": int(10 * factor) + 10}
            write_run(place, seed=seed, clients=1, config={"algorithm": {"server_lr": factor}}, **own, **more)
    return read_runs(find_runs([directory / "arms"]), length=find_runs([directory / "length"]))


def test_the_length_picture_is_that_of_the_comparison(tmp_path: Path) -> None:
    runs = method_runs(tmp_path)
    comparison = compare_finished(runs, "fedavg", "method")
    told = Page(render(runs, comparison))
    (drawn,) = told.data["lengths"]
    (curve,) = comparison.curves
    assert [row[1] for row in drawn["band"]] == pytest.approx([100 * row[1] for row in curve.band()], rel=1e-4)
    assert [length for length, _ in drawn["knots"]] == pytest.approx([0.7, 1.0, 2.0], rel=1e-3)
    pairs = {pair.method: pair for pair in comparison.pairs}
    assert set(pairs) == {method["label"] for method in drawn["methods"]}
    for method in drawn["methods"]:
        pair = pairs[method["label"]]
        assert pair.split is not None
        assert method["length"] == pytest.approx(pair.split.ratio, rel=1e-4)
        assert method["value"] == pytest.approx(100 * (pair.primary.regulated_mean or 0), rel=1e-4)
        if pair.split.direction is not None:
            width = pair.split.direction.interval[1] - pair.split.direction.interval[0]
            assert method["interval"][1] - method["interval"][0] == pytest.approx(100 * width, rel=1e-2)


def test_a_task_with_another_metric_is_told_in_its_words(tmp_path: Path) -> None:
    runs = method_runs(tmp_path, metric="auc", classes=())
    told = Page(render(runs, compare_finished(runs, "fedavg", "method")))
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
    (text,) = (entry["text"] for entry in config_texts(group_runs(read_runs([record]))))
    assert tomllib.loads(text)["regulator"] == {k: v for k, v in record.config["regulator"].items() if v is not None}
    (tmp_path / "again.toml").write_text(text)
    assert load(tmp_path / "again.toml").key() == Experiment.from_dict(record.config).key()


def test_each_algorithm_gets_its_sentence(tmp_path: Path) -> None:
    records = [
        record
        for algorithm in ("fedavg", "scaffold")
        for record in write_comparison_runs(tmp_path / algorithm, algorithm=algorithm)
    ]
    told = page(records)
    sentences = [pair["sentence"] for pair in presentation.to_json(compare(summarise(records)))["pairs"]]
    assert len(sentences) == 2
    assert all(sentence in told.texts for sentence in sentences)


def test_the_cost_of_regulation_is_its_share_of_the_clients_own_time(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a")
    rows = [json.loads(line) for line in (record.directory / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        for client in row["clients"]:
            client |= {"regulation_seconds": client["seconds"] / 8, "steps_memory": 1000.0 * client["steps"]}
    (record.directory / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cost = cost_table(group_runs(read_runs([record])))
    assert cost is not None
    cells = dict(zip([column.label for column in cost.columns], cost.rows[0], strict=True))
    assert cells["share of the clients' time"].text == "12.5 %"
    assert cells["memory for steps"].text == "10 kB"
    assert not [column.label for column in cost.columns if "second" in column.label]
