"""README's three sentences and the table of methods by situation say what the records say."""

import re
import runpy
from pathlib import Path

import pytest

from ecgr.config.catalogue import WHEN

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
SCRIPT = runpy.run_path(str(GUIDE.parent / "measured.py"))
LINES = [line.strip("| ").split(" | ") for line in SCRIPT["table"]().splitlines()[2:]]


@pytest.mark.parametrize("page", SCRIPT["PAGES"])
def test_a_page_says_what_the_records_say(page: str) -> None:
    assert SCRIPT["written"](page) == (SCRIPT["ROOT"] / page).read_text(), "`make results` writes it anew"


def test_the_reason_that_is_given_for_the_papers_gain_is_what_the_controls_say() -> None:
    (paper,) = SCRIPT["pairs"]("main", "fedavg+ecgr", "data.name=mnist")
    (longer,) = SCRIPT["pairs"]("controls", "fedavg, server_lr=1.05", "data.name=mnist")
    (matched,) = SCRIPT["pairs"]("controls", "fedavg+ecgr, step_control=match_plain", "data.name=mnist")
    assert paper["verdict"] == longer["verdict"] == "better"
    assert matched["metrics"]["last5"]["mean_difference"] < 0


@pytest.mark.parametrize("row", SCRIPT["ROWS"], ids=lambda row: f"{row.method}, {row.participation}")
def test_what_is_called_measured_names_a_record(row: object) -> None:
    line = LINES[SCRIPT["ROWS"].index(row)]
    measured, literature = line[-2:]
    for record in re.findall(r"\((\.\./results/data/[^)]*)\)", measured):
        assert (GUIDE / record).is_file()
    assert measured == "not yet" or re.search(r"(points|AUC) \([+-][\d.]+ to [+-][\d.]+\): \[", measured)
    assert measured != "not yet" or re.search(r"arXiv \d{4}\.\d{5}", literature), "neither measured nor literature"


def test_the_catalogue_calls_measured_what_a_record_holds() -> None:
    boards = [path.parent.name for path in SCRIPT["DATA"].glob("leaderboard-*/comparison.json")]
    there = {"fedavg", *(pair["method"] for board in boards for pair in SCRIPT["every_pair"](board))}
    assert {method for method, (_, evidence) in WHEN.items() if evidence == "measured"} <= there


def test_a_method_is_looked_up_with_its_parameters() -> None:
    assert SCRIPT["pairs"]("leaderboard-mnist001", "fedavgm") == []
    assert len(SCRIPT["pairs"]("leaderboard-mnist001", "fedavgm(server_momentum=0.5)")) == 1


def test_what_a_method_needs_is_counted() -> None:
    needs = {line[2]: line[3:5] for line in LINES}
    assert needs["`scaffold`"] == ["1 vector", "1 more down"]
    assert needs["`fedavg+ecgr`"] == ["none", "as FedAvg"]
