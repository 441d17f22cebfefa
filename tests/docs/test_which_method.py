"""The guide says what methods keep and send as a round of each counts it; the catalogue calls measured what was."""

import re
from pathlib import Path

import pytest
from study.pages import LEADERBOARD, pairs

from ecgr.config.catalogue import WHEN, cost_of
from ecgr.config.methods import Method

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "which_method.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in re.findall(r"(?m)^\|.*`.*\|$", PAGE.partition("## By method")[2])]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row[:-1]))
def test_a_row_says_what_its_method_keeps_and_sends(row: list[str]) -> None:
    place = next(place for place, cell in enumerate(row) if cell.startswith(("`", "| `")))
    method, kept, traffic, measured, literature = row[place : place + 5]
    cost = cost_of(Method.of(method.strip("|` ")))
    assert kept == ("none" if not cost.stateful else f"{cost.client} vector{'s' if cost.client > 1 else ''}")
    more = [f"{count} more {way}" for count, way in ((cost.up - 1, "up"), (cost.down - 1, "down")) if count]
    assert traffic == (", ".join(more) or "as FedAvg")
    assert measured != "not yet" or re.search(r"arXiv \d{4}\.\d{5}", literature), "neither measured nor literature"


def test_the_catalogue_calls_measured_what_the_data_hold() -> None:
    there = {"fedavg", *(pair["method"] for name in LEADERBOARD for pair in pairs(f"earlier/{name}"))}
    assert {method for method, (_, evidence) in WHEN.items() if evidence == "measured"} <= there
