"""What is written and shown says what was found, and nothing more."""

import csv
import io
import json
from dataclasses import replace

import pytest

from ecgr.analysis.comparison import Comparison, compare
from ecgr.analysis.summaries import RunSummary
from ecgr.report.answer import to_html
from ecgr.report.table import CSV, result_rows, results_table, to_csv, to_json, to_latex
from ecgr.report.terminal import to_table
from ecgr.report.words import sentence
from support.findings import comparison_of, made_up, pair_of
from support.reports import printed

GAINS = {"clear": 0.01, "same": 0.0, "pooled": 0.2, "alone": -0.3, "below": -0.04}
KEYS = {
    "": "advice baseline metric margin rounds seeds tuned rates tuning level alpha tests references worth cautions"
    " pairs",
    "pairs": "setting method baseline verdict sentence seeds rounds metric margin score baseline_score difference speed"
    " levelled_off rising gap_closed diverged at_chance left_out",
    "difference": "mean interval p p_holm by_seed",
    "speed": "factor interval p p_holm shown target rounds late",
    "references": "name setting score difference seeds",
}
"""Those that `docs/reference/statistics.md` describes."""


@pytest.fixture
def comparison() -> Comparison:
    return made_up(GAINS)


class TestJson:
    def test_it_says_what_was_found_under_stable_keys(self, comparison: Comparison) -> None:
        text = json.dumps(to_json(comparison), allow_nan=False)
        written = json.loads(text)
        assert json.dumps(written) == text
        found = {"": [written], "pairs": written["pairs"], "references": written["references"]}
        found |= {key: [pair[key] for pair in written["pairs"]] for key in ("difference", "speed")}
        assert {key: [" ".join(each) for each in own] for key, own in found.items()} == {
            key: [KEYS[key]] * len(own) for key, own in found.items()
        }
        assert (written["rounds"], written["seeds"], written["tuned"]) == (8, list(range(10)), False)
        assert [pair["sentence"] for pair in written["pairs"]] == [sentence(pair) for pair in comparison.pairs]
        first = comparison.pairs[0]
        assert first.difference is not None
        assert list(written["pairs"][0]["difference"]["by_seed"].values()) == list(first.difference.differences)
        assert written["references"][0]["score"] == pytest.approx(0.2, abs=1e-3)

    def test_what_diverged_has_no_numbers(self) -> None:
        (pair,) = to_json(comparison_of(pair_of("diverged", difference=None, speed=None, failed=(1,))))["pairs"]
        assert (pair["difference"], pair["speed"], pair["diverged"]) == (None, None, (1,))


class TestRows:
    def test_the_baseline_is_first_then_the_best_references_last(self, comparison: Comparison) -> None:
        rows = result_rows(comparison)
        assert [row.method for row in rows] == ["fedavg", "clear", "same", "below", "alone", "pooled"]
        assert [row.kind for row in rows] == ["baseline", "better", "equal", "worse", "reference", "reference"]
        assert rows[0].score == pytest.approx(0.5)

    def test_page_notebook_csv_and_latex_show_the_same_rows(self, comparison: Comparison) -> None:
        shown = results_table(comparison)
        lines = printed(to_table(shown), width=200).splitlines()
        notebook, latex = to_html(comparison), to_latex(comparison).splitlines()
        written = list(csv.DictReader(io.StringIO(to_csv(comparison))))
        for row, own in zip(shown.rows, written, strict=True):
            texts = [cell.text for cell in row]
            assert " ".join(texts).split() in [line.split() for line in lines]
            assert all(f">{text}</td>" in notebook for text in texts)
            assert any(line.startswith(f"{texts[0]} & {texts[1]} & ") for line in latex)
            assert (own["method"], own["verdict"]) == (texts[0], texts[-1])

    def test_a_row_by_hand(self, comparison: Comparison) -> None:
        """Differences of 1 point with a standard deviation of 0.303: 1 -+ 2.262 * 0.303 / sqrt(10) is 0.78 to 1.22."""
        (row,) = (row for row in results_table(comparison).rows if row[0].text == "clear")
        assert [cell.text for cell in row] == ["clear", "51.0", "+1.0 (0.8 to 1.2)", "1.0x (1.0 to 1.0)", "better"]

    def test_the_csv_has_all_digits_and_reads_back(self, comparison: Comparison) -> None:
        rows = {row["method"]: row for row in csv.DictReader(io.StringIO(to_csv(comparison)))}
        first, own = comparison.pairs[0], rows[comparison.pairs[0].method]
        assert list(own) == list(CSV)
        assert first.difference is not None
        assert float(own["difference"]) == first.difference.mean
        assert first.difference.interval == (float(own["interval_low"]), float(own["interval_high"]))
        read_back = dict(entry.split(":") for entry in own["differences"].split())
        assert [float(gain) for gain in read_back.values()] == list(first.difference.differences)

    def test_names_stay_in_their_cell_and_markup_in_them_is_text(self) -> None:
        names = ["[bold]", "[red]x[/blue]", 'a,"b"\nc']
        found = compare([RunSummary(name, 0, (0.5,)) for name in names])
        rows = list(csv.DictReader(io.StringIO(to_csv(found), newline="")))
        assert [row["method"] for row in rows] == names
        assert all(name in printed(to_table(results_table(found))) for name in names[:2])

    def test_the_setting_is_named_only_if_there_are_several(self) -> None:
        named = pair_of("better", setting="alpha=1")
        both = comparison_of(named, replace(named, setting="alpha=9"))
        assert "alpha=1" not in printed(to_table(results_table(comparison_of(named))))
        assert "alpha=1" in printed(to_table(results_table(both)), width=200)


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_in_a_terminal(width: int) -> None:
    shown = results_table(made_up({"scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)": -0.123}))
    text = printed(to_table(shown), width=width)
    assert all(cell.text in text for row in shown.rows for cell in row if cell.value is not None)
    assert "worse" in text
