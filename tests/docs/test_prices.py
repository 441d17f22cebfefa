"""The prices on the page about privacy are those of the committed data."""

import re
from pathlib import Path

import pytest

from ecgr.compare.analyse import analyse
from ecgr.report.words import best_first
from ecgr.runs.record import to_json

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guide/privacy.md").read_text()
DATA = sorted((ROOT / "docs/results/data/privacy").glob("*.json"))


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_the_table_has_the_numbers_of_the_data(path: Path) -> None:
    answer = analyse(path)
    rows = re.findall(rf"^\| {path.stem} \| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
    spent = {run.method: run.privacy for run in answer.summaries}
    metric = answer.pairs[0].metric
    expected = [(answer.baseline, metric.number(answer.pairs[0].baseline_score), "-", "-")]
    for pair in best_first(answer.pairs):
        found, privacy = pair.difference, spent[pair.method]
        assert found is not None
        assert found.interval is not None
        low, high = sorted(-metric.gain(end) for end in found.interval)
        size = metric.amount(metric.gain(found.mean), (low, high))
        assert privacy is not None
        epsilon = "none" if privacy["epsilon"] is None else f"{privacy['epsilon']:.3g}"
        expected.append((pair.method, metric.number(pair.score), epsilon, f"{size} ({metric.range((low, high))})"))
    assert rows == expected, to_json([list(row) for row in expected], indent=1).decode()
    assert f"{len(answer.pairs[0].seeds)} seeds" in PAGE


def test_there_is_data() -> None:
    assert [path.stem for path in DATA] == ["digits", "heart", "hospitals"]
