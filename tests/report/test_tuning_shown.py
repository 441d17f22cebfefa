"""What tuning tried and chose, as the answer shows it."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from ecgr.analysis.comparison import Comparison
from ecgr.report.picture import trials_svg
from ecgr.report.table import tuning_table
from ecgr.report.words import cautions
from support.findings import made_up


def tuning_of(agreeing: int) -> dict[str, Any]:
    trials = [
        {"values": {"optimizer.lr": rate}, "mean": score, "scores": [{"100": score, "101": score}]}
        for rate, score in ((0.01, 0.5), (0.1, 0.8), (1.0, None))
    ]
    without = {str(seed): {"optimizer.lr": 0.1} for seed in range(4)}
    return {"chosen": {"optimizer.lr": 0.1}, "agreeing": agreeing, "without": without, "trials": trials}


def tuned(agreeing: int = 4) -> Comparison:
    return replace(made_up({"a": 0.03}), tuning={"fedavg": tuning_of(4), "a": tuning_of(agreeing)})


def test_every_trial_is_a_dot_and_better_scores_are_higher() -> None:
    drawing = ElementTree.fromstring(trials_svg(tuned(), {"fedavg": 0, "a": 1}))
    circles = [(group.findtext("title") or "", group.find("circle")) for group in drawing.findall("g")]
    assert len(circles) == 6
    heights = {told: float(dot.attrib["cy"]) for told, dot in circles if dot is not None}
    assert heights["a: 0.1, 80.0 %, chosen"] < heights["a: 0.01, 50.0 %"] < heights["a: 1, failed"]


def test_the_table_says_how_sure_a_choice_is() -> None:
    shown = tuning_table(tuned(agreeing=1))
    assert shown is not None
    assert [[cell.text for cell in row] for row in shown.rows] == [
        ["fedavg", "lr 0.1", "3", "4 of 4"],
        ["a", "lr 0.1", "3", "1 of 4"],
    ]
    assert tuning_table(made_up({"a": 0.03})) is None


def test_a_choice_that_most_seeds_would_not_make_is_a_caution() -> None:
    assert [line for line in cautions(tuned(agreeing=1)) if line.startswith("a: other tuning seeds")]
    assert not [line for line in cautions(tuned()) if "tuning seeds" in line]
