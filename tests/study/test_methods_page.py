"""The page on methods says what its data say."""

import json

import pytest
from study.data import DATA, RESULTS

PAGE = (RESULTS / "methods.md").read_text()


@pytest.mark.parametrize("name", ["demo", "tuned-mnist", "tuned-fashion_mnist"])
def test_every_row_is_that_of_the_data(name: str) -> None:
    pairs = json.loads((DATA / name / "comparison.json").read_text())["pairs"]
    assert pairs
    for pair in pairs:
        found = pair["metrics"]["last5"]
        low, high = found["interval"]
        row = (
            f"| `{pair['method']}` | {100 * found['baseline_mean']:.2f} | {100 * found['mean_difference']:+.2f} |"
            f" {100 * low:+.2f} to {100 * high:+.2f} | {pair['verdict']} | {pair['cause'] or ''} |"
        )
        assert row in PAGE


@pytest.mark.parametrize("name", ["demo", "tuned-mnist", "tuned-fashion_mnist"])
def test_tuned_values_are_those_of_the_trials(name: str) -> None:
    for method in json.loads((DATA / name / "tuning.json").read_text())["methods"]:
        best = max((trial for trial in method["trials"] if trial["mean"] is not None), key=lambda trial: trial["mean"])
        assert best["values"] == method["chosen"]
        assert f"`{method['method']}`: optimizer.lr = {method['chosen']['optimizer.lr']}" in PAGE
