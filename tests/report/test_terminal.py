"""The answer on a terminal: short, in its width, readable without colours and without Unicode."""

import io

import pytest
from rich.console import Console

from ecgr.analysis.comparison import Comparison
from ecgr.report.answer import Answer
from ecgr.report.picture import ends_of
from ecgr.report.terminal import Picture, answer_parts, picture_lines
from support.findings import comparison_of, made_up, pair_of
from support.reports import printed

GAINS = {"a": 0.03, "much_longer_than_any_name_should_ever_be": 0.01, "c": -0.02, "d": 0.0}


@pytest.fixture
def comparison() -> Comparison:
    return made_up(GAINS)


def told(comparison: Comparison, everything: bool = False) -> list[str]:
    return printed(*answer_parts(comparison, ("compare", "quickstart"), everything)).splitlines()


def test_it_is_short_and_begins_with_advice() -> None:
    lines = told(made_up({**GAINS, "pooled": 0.2, "alone": -0.3}))
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("Use a (not tuned): it ")
    assert any(line.startswith("Federating is worth it: alone 20.0 %, fedavg 50.0 %, pooled 70.0 %.") for line in lines)
    assert not any("after Holm" in line for line in lines)


def test_the_statistics_come_on_request_and_printing_an_answer_gives_the_same(comparison: Comparison) -> None:
    assert any("after Holm" in line for line in told(comparison, everything=True))
    answer = Answer(comparison.baseline, comparison.pairs, comparison.references, comparison.summaries)
    assert str(answer).splitlines()[0] == told(comparison)[0].rstrip()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_picture_fits_and_the_best_is_first(comparison: Comparison, width: int) -> None:
    lines = [line for line, _ in picture_lines(ends_of(comparison), width)]
    assert all(len(line) <= width for line in lines)
    assert [line.split()[0][:10] for line in lines[:5]] == ["fedavg", "a", "much_longe", "d", "c"]


def test_the_dot_lies_within_its_interval_and_on_its_side_of_the_baseline(comparison: Comparison) -> None:
    (base, _), (best, _), *_, (worst, kind), (scale, _) = picture_lines(ends_of(comparison), 400)
    assert kind == "worse"
    assert best.index("│") == base.index("●")
    assert best.index("│") < best.index("├") < best.index("●") < best.rindex("┤")
    assert worst.index("├") < worst.index("●") < worst.rindex("┤") < worst.index("│")
    assert scale.split() == ["47.6", "%", "53.4", "%"]


def test_references_are_rings_beside_the_baseline_and_arrows_where_they_are_far_from_it() -> None:
    lines = picture_lines(ends_of(made_up({"a": 0.03, "pooled": 0.05, "alone": -0.02})))
    assert [line.split()[0] for line, _ in lines[:2]] == ["fedavg", "a"]
    assert lines[0][0].count("○") == 2
    assert "○ alone, pooled" in lines[-1][0]
    far = picture_lines(ends_of(made_up({"a": 0.03, "pooled": 0.05, "alone": -0.3})))
    assert (far[0][0].count("○"), far[0][0].count("◂")) == (1, 1)
    assert "◂ alone 20.0 %  ○ pooled" in far[-1][0]
    assert far[0][0].index("●") < 0.6 * len(far[0][0]), "the methods keep their room"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_it_is_printed_in_what_the_terminal_can_show(comparison: Comparison, encoding: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=80, color_system=None)
    console.print(Picture(comparison))
    console.file.flush()
    assert ("●" in raw.getvalue().decode(encoding)) == (encoding == "utf-8")


def test_one_seed_is_a_dot_without_an_interval_and_what_ended_nowhere_is_not_drawn() -> None:
    line, kind = picture_lines(ends_of(made_up({"a": 0.03}, seeds=1)))[1]
    assert kind == "too few seeds"
    assert "●" in line
    assert "─" not in line
    lost = pair_of("diverged", difference=None, score=None, baseline_score=None)
    assert ends_of(comparison_of()) == ends_of(comparison_of(lost)) == []


def test_settings_are_drawn_apart() -> None:
    pairs = [pair_of("better", setting=name, method="a\n[b]") for name in ("alpha=1", "alpha=0.1")]
    lines = [line for line, _ in picture_lines(ends_of(comparison_of(*pairs)))]
    assert lines[0] == "alpha=1"
    assert "alpha=0.1" in lines
    assert any(line.startswith("a [b]") for line in lines)
