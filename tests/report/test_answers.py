"""The answer on the page: the comparison's own, best first, in the task's words, with pictures that say the same."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.records import find_runs, group_runs, read_runs
from ecgr.compare.analyse import analyse_runs
from ecgr.config.experiment import Experiment, load
from ecgr.report.page import render
from ecgr.report.page_text import config_texts, cost_table
from ecgr.report.picture import ends_of
from ecgr.report.table import to_json
from support.reports import Page, page
from support.runs import write_comparison_runs, write_run


@pytest.mark.parametrize(("seeds", "gain", "verdict"), [(10, 0.1, "ahead"), (3, 0.0, "too few seeds")])
def test_the_answer_is_that_of_the_comparison(tmp_path: Path, seeds: int, gain: float, verdict: str) -> None:
    records = write_comparison_runs(tmp_path, seeds=seeds, gain=gain)
    written = to_json(analyse_runs(records))
    told = page(records)
    assert [pair["verdict"] for pair in written["pairs"]] == [verdict]
    assert written["advice"] in told.texts
    assert all(caution in told.texts for caution in written["cautions"])
    assert any(text.strip() == verdict for text in told.texts)


def test_rounds_rates_and_whether_they_were_tuned_stand_at_the_top(tmp_path: Path) -> None:
    told = page(write_comparison_runs(tmp_path))
    assert {"6 rounds", "not tuned", "learning rate 0.01"} <= set(told.texts[: told.texts.index("The answer")])


def test_each_method_has_the_round_in_which_it_gets_to_the_baselines_end(tmp_path: Path) -> None:
    told = page(write_comparison_runs(tmp_path, seeds=10, gain=0.1))
    (group,) = told.data["groups"]
    (pair,) = to_json(analyse_runs(find_runs([tmp_path])))["pairs"]
    rounds = [pair["speed"]["rounds"][side] for side in ("baseline", "method")]
    assert [method["arrives"][0] for method in group["methods"]] == pytest.approx(rounds)
    assert group["methods"][0]["arrives"][1] == pytest.approx(100 * pair["speed"]["target"], rel=1e-4)


@pytest.mark.parametrize("larger_is_better", [True, False])
def test_better_is_to_the_right_in_the_picture(tmp_path: Path, larger_is_better: bool) -> None:
    name = "auc" if larger_is_better else "mae"
    (ends,) = ends_of(comparison_of(tmp_path, metric=name, larger_is_better=larger_is_better))
    assert {mark.label for mark in ends.marks} == {"fedavg", "scaffold", "fedacg", "fedprox"}
    for mark in ends.marks[1:]:
        assert (ends.share(mark.score) > ends.share(ends.baseline)) == (mark.kind in ("better", "ahead"))
        assert mark.interval is not None
        assert mark.interval[0] <= mark.score <= mark.interval[1]


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
    experiment = load("quickstart", {"regulator.name": "ecgr"})
    record = write_run(tmp_path / "a", config=experiment.to_dict())
    (text,) = (entry["text"] for entry in config_texts(group_runs(read_runs([record]), "fedavg")[""]))
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
    assert all(sentence in told.text for sentence in sentences)


def test_the_cost_of_regulation_is_its_share_of_the_clients_own_time(tmp_path: Path) -> None:
    record = write_run(tmp_path / "a")
    rows = [json.loads(line) for line in (record.directory / "rounds.jsonl").read_text().splitlines()]
    for row in rows:
        for client in row["clients"]:
            client |= {"regulation_seconds": client["seconds"] / 8, "steps_memory": 1000.0 * client["steps"]}
    (record.directory / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cost = cost_table(group_runs(read_runs([record]), "fedavg")[""])
    assert cost is not None
    cells = dict(zip([column.label for column in cost.columns], cost.rows[0], strict=True))
    assert cells["share of the clients' time"].text == "12.5 %"
    assert cells["memory for steps"].text == "10 kB"
    assert not [column.label for column in cost.columns if "second" in column.label]
