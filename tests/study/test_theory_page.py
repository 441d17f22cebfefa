"""The page on the theory: its figure is drawn from the mathematics, to the same bytes, and its tests exist."""

import re
from pathlib import Path

import numpy as np
import pytest

from study import figure_lemma, figures

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("angle", [0.3, 1.0, 2.0, 2.9])
def test_the_worst_case_changes_its_sign_at_the_bound(angle: float) -> None:
    beta, ratio = np.meshgrid(np.linspace(0, 0.99, 34), np.linspace(0.01, 1.5, 50))
    found = figure_lemma.worst_case(beta, ratio, angle)
    clear = abs(beta - ratio) > 1e-9
    assert np.array_equal(found[clear] > 0, (beta > ratio)[clear])


@pytest.mark.slow
def test_the_figure_is_the_same_each_time_and_says_nothing_of_its_maker(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        figures.save(tmp_path / name, figure_lemma.SIZE, figure_lemma.draw)
    content = (tmp_path / "one.png").read_bytes()
    assert content == (tmp_path / "two.png").read_bytes()
    assert b"tEXt" not in content


def test_the_page_names_tests_that_exist() -> None:
    page = (ROOT / "docs/results/theory.md").read_text()
    files = [ROOT / name for name in re.findall(r"`(tests/[\w/]+\.py)`", page)]
    code = "".join(file.read_text() for file in files)
    names = re.findall(r"`(test_\w+)`", page)
    assert len(names) > 10
    assert [name for name in names if f"def {name}(" not in code] == []
