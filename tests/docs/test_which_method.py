"""The table of methods by situation says what the records say, and marks what nobody measured."""

import re
import runpy
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
SCRIPT = runpy.run_path(str(GUIDE / "which_method.py"))
PAGE = (GUIDE / "which_method.md").read_text()
LINES = [line.strip("| ").split(" | ") for line in SCRIPT["table"]().splitlines()[2:]]


def test_the_page_has_the_table_of_the_records() -> None:
    assert SCRIPT["with_table"](PAGE) == PAGE, "`make results` writes it anew"


@pytest.mark.parametrize("row", SCRIPT["ROWS"], ids=lambda row: f"{row.method}, {row.participation}")
def test_what_is_called_measured_names_a_record(row: object) -> None:
    line = LINES[SCRIPT["ROWS"].index(row)]
    measured, literature = line[-2:]
    for record in re.findall(r"\((\.\./results/data/[^)]*)\)", measured):
        assert (GUIDE / record).is_file()
    assert measured == "not yet" or re.search(r"points \([+-][\d.]+ to [+-][\d.]+\): \[", measured)
    assert measured != "not yet" or re.search(r"arXiv \d{4}\.\d{5}", literature), "neither measured nor literature"


def test_what_a_method_needs_is_counted() -> None:
    needs = {line[2]: line[3:5] for line in LINES}
    assert needs["`scaffold`"] == ["1 vector", "1 more down"]
    assert needs["`fedavg+ecgr`"] == ["none", "as FedAvg"]
