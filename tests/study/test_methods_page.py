"""The page on methods says what its data say, for every comparison that was kept."""

import json
from typing import Any

import pytest
from study.boards import known
from study.data import DATA, RESULTS, Study, load

from ecgr.analysis.quantities import Quantity
from study import methods_page

PAGE = (RESULTS / "methods.md").read_text(encoding="utf-8")
KEPT = [name for name, _, _ in known() if (DATA / name).is_dir()]


@pytest.fixture(scope="module")
def study() -> Study:
    return load()


def read(name: str, file: str) -> Any:
    return json.loads((DATA / name / file).read_text(encoding="utf-8"))


def test_the_page_is_what_the_data_give(study: Study) -> None:
    assert methods_page.page(study.boards) == PAGE, "run `make results`"
    assert [board.name for board in study.boards] == KEPT


@pytest.mark.parametrize("name", KEPT)
def test_every_row_is_that_of_the_data(name: str) -> None:
    """Read the page as a reader does, and look each row up in the file that `ecgr compare` wrote."""
    pairs = read(name, "comparison.json")["pairs"]
    assert pairs
    for pair in pairs:
        found, metric = pair["metrics"]["last5"], Quantity(**read(name, "summaries.json")[0]["metric"])
        plain, difference = metric.number(found["baseline_mean"]), metric.change(found["mean_difference"])
        interval = " to ".join(map(metric.change, found["interval"] or ()))
        cause = " and ".join(pair["causes"])
        row = f"| `{pair['method']}` | {plain} | {difference} | {interval} | {pair['verdict']} | {cause} |"
        assert row in PAGE


@pytest.mark.parametrize("name", KEPT)
def test_direction_is_told_from_tuning_by_what_was_chosen(name: str) -> None:
    chosen = {method["method"]: method["chosen"] for method in read(name, "tuning.json")["methods"]}
    for pair in read(name, "comparison.json")["pairs"]:
        apart = chosen[pair["method"]] != chosen[pair["baseline_method"]]
        assert ("direction" in pair["causes"], "direction or tuning" in pair["causes"]) in (
            (False, False),
            (not apart, apart),
        )


@pytest.mark.parametrize("name", KEPT)
def test_tuned_values_are_the_best_of_the_trials(name: str) -> None:
    for method in read(name, "tuning.json")["methods"]:
        known_scores = [trial for trial in method["trials"] if trial["mean"] is not None]
        assert max(known_scores, key=lambda trial: trial["mean"])["values"] == method["chosen"]
        assert f"`{method['method']}`: optimizer.lr = {method['chosen']['optimizer.lr']}" in PAGE


@pytest.mark.parametrize("name", KEPT)
def test_what_was_kept_says_which_commit_made_it(name: str) -> None:
    commits = read(name, "provenance.json")["commits"]
    assert commits
    assert f"Commit {', '.join(commit[:7] for commit in commits)}." in PAGE


def test_every_command_and_every_problem_that_was_not_run_is_named(study: Study) -> None:
    assert all(board.command in PAGE for board in study.boards)
    for name, title, _ in known():
        assert f"## {title}\n" in PAGE if name in KEPT else f"- {title}: `" in PAGE
