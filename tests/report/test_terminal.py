"""The picture of characters: in its width, in its order, readable without colours and without Unicode."""

import io

import pytest
from rich.console import Console

from ecgr.analysis.summaries import RunSummary
from ecgr.analysis.verdicts import Comparison, compare
from ecgr.report.terminal import ASCII, Picture, picture_lines

GAINS = {"a": 0.03, "much_longer_than_any_name_should_ever_be": 0.01, "c": -0.02, "d": 0.0}


@pytest.fixture
def comparison() -> Comparison:
    return compare(
        [
            RunSummary(name, seed, (0.5 + gain + (seed - 4.5) / 1000 * (name != "fedavg"),) * 6)
            for name, gain in {"fedavg": 0.0, **GAINS}.items()
            for seed in range(10)
        ]
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_and_the_best_is_first(comparison: Comparison, width: int) -> None:
    lines = [line for line, _ in picture_lines(comparison, width)]
    assert all(len(line) <= width for line in lines)
    assert [line.split()[0][:10] for line in lines[:4]] == ["a", "much_longe", "d", "c"]
    assert [line.split()[-1] for line in lines[:4]] == ["better", "better", "equivalent", "worse"]


def test_the_dot_lies_within_its_interval_and_on_its_side_of_zero(comparison: Comparison) -> None:
    (best, _), *_, (worst, _), (scale, _) = picture_lines(comparison)
    assert best.index("│") < best.index("├") < best.index("●") < best.rindex("┤")
    assert worst.index("├") < worst.index("●") < worst.rindex("┤") < worst.index("│")
    assert scale.strip().startswith("accuracy, points: -2.2 to +3.2; better is right")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_it_is_printed_in_what_the_terminal_can_show(comparison: Comparison, encoding: str) -> None:
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding=encoding), width=80, color_system=None)
    console.print(Picture(comparison))
    console.file.flush()
    text = raw.getvalue().decode(encoding)
    assert ("●" in text) == (encoding == "utf-8")
    assert text.splitlines()[0].rstrip().endswith("+3.0 better")


def test_one_seed_is_a_dot_without_an_interval() -> None:
    found = compare([RunSummary(name, 0, (0.5 + gain,)) for name, gain in (("fedavg", 0.0), ("a", 0.01))])
    line, pair = picture_lines(found, marks=ASCII)[0]
    assert pair == found.pairs[0]
    assert "o" in line.split()[2]
    assert "-" not in line.removesuffix("too few seeds")


def test_nothing_to_draw() -> None:
    assert picture_lines(compare([])) == []
    assert picture_lines(compare([RunSummary("a", 0, (0.5,))])) == []


def test_settings_are_drawn_apart(comparison: Comparison) -> None:
    found = compare(
        [
            RunSummary(name, seed, (0.5 + seed / 100,), setting=setting)
            for setting in ("alpha=1", "alpha=0.1")
            for name in ("fedavg", "a\n[b]")
            for seed in range(3)
        ]
    )
    lines = [line for line, _ in picture_lines(found)]
    assert lines[0] == "alpha=1"
    assert "alpha=0.1" in lines
    assert any(line.startswith("a [b]") for line in lines)
