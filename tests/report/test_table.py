"""What is written and shown says what was found, and nothing more."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from ecgr.analysis.pairs import Estimate, Pair
from ecgr.analysis.quantities import Quantity
from ecgr.analysis.summaries import METRICS, PRIMARY, RunSummary
from ecgr.analysis.verdicts import Comparison, compare
from ecgr.report.answer import Answer
from ecgr.report.notebook import to_html
from ecgr.report.table import CSV_COLUMNS, result_rows, results_table, to_csv, to_json, to_latex
from ecgr.report.terminal import to_table
from ecgr.report.words import answer, details, notes, sentence

GAINS = {
    "clear": (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011),
    "few": (0.01, 0.012, 0.009, 0.011, 0.008),
    "same": (0.001, -0.001, 0.0005, -0.0005, 0.0) * 2,
    "noisy": (0.03, -0.03, 0.02, -0.01, 0.01, -0.02, 0.03, -0.01, 0.0, -0.02),
    "one": (0.02,),
    "constant": (0.02,) * 10,
}


@pytest.fixture
def comparison() -> Comparison:
    def runs() -> Iterator[RunSummary]:
        for seed in range(10):
            yield RunSummary("fedavg", seed, (0.4, 0.5), (None, 0.25))
        for method, gains in GAINS.items():
            for seed, gain in enumerate(gains):
                yield RunSummary(method, seed, (0.4 + gain, 0.5 + gain), (None, 0.25 + gain))
        yield RunSummary("alone", 77, (0.4, 0.5))

    return compare(runs())


def printed(table: RenderableType, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pair_of(estimate: Estimate, seeds: int = 10) -> Pair:
    return Pair("", "fedavg+ecgr", "fedavg", tuple(range(seeds)), {}, None, {PRIMARY: estimate})


class TestJson:
    def test_survives_strict_json_unchanged(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert json.loads(json.dumps(written, allow_nan=False)) == written

    def test_keys_are_stable(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert set(written) == {
            *("baseline", "answer", "primary", "metric", "level", "alpha", "power", "margin", "headline_seeds"),
            *("family", "plan", "metrics", "pairs"),
        }
        for pair in written["pairs"]:
            assert set(pair) == {
                *("setting", "method", "baseline", "verdict", "difference", "interval", "note", "sentence"),
                *("exploratory", "seeds", "left_out", "seeds_needed", "target", "metrics"),
                *("metric", "details", "rounds", "rising", "chance", "margin"),
            }
            assert set(pair["metrics"]) == set(METRICS)
            for estimate in pair["metrics"].values():
                assert set(estimate) == {
                    *("baseline_mean", "method_mean", "mean_difference", "differences", "interval"),
                    *("p", "p_holm", "p_least", "effect_size", "p_equivalent"),
                }

    def test_an_infinite_effect_is_null(self, comparison: Comparison) -> None:
        place = [pair.method for pair in comparison.pairs].index("constant")
        assert comparison.pairs[place].primary.dz == math.inf
        assert to_json(comparison)["pairs"][place]["metrics"][PRIMARY]["effect_size"] is None

    def test_the_sentence_is_that_of_the_pair(self, comparison: Comparison) -> None:
        written = [pair["sentence"] for pair in to_json(comparison)["pairs"]]
        assert written == [sentence(pair) for pair in comparison.pairs]


class TestRows:
    def test_the_baseline_is_first_then_the_best_what_cannot_be_compared_last(self, comparison: Comparison) -> None:
        rows = result_rows(comparison)
        assert [row.method for row in rows] == ["fedavg", "one", "constant", "clear", "few", "same", "noisy", "alone"]
        assert rows[0].pair is None
        assert rows[0].score == pytest.approx(0.45)
        assert rows[0].seeds == 10

    def test_terminal_page_notebook_csv_and_latex_show_the_same_rows(self, comparison: Comparison) -> None:
        shown = results_table(comparison)
        lines = printed(to_table(comparison), width=200).splitlines()
        notebook, latex = to_html(comparison), to_latex(comparison).splitlines()
        written = list(csv.DictReader(io.StringIO(to_csv(comparison))))
        for row, own in zip(shown.rows, written, strict=True):
            texts = [cell.text for cell in row]
            assert " ".join(texts).split() in [line.split() for line in lines]
            assert all(f">{text}</td>" in notebook for text in texts)
            assert any(line.startswith(f"{texts[0]} & {texts[1]} & {texts[2]} & ") for line in latex)
            assert (own["method"], own["seeds"], own["verdict"]) == (texts[0], texts[1], texts[-1])

    def test_a_row_by_hand(self, comparison: Comparison) -> None:
        """Seven tests of which five have a p; the t interval of the ten gains is 8.9 to 11.7 tenths of a point."""
        (row,) = (row for row in results_table(comparison).rows if row[0].text == "clear")
        assert [cell.text for cell in row] == ["clear", "10", "46.0", "+1.0", "0.9 to 1.2", "0.0098", "better"]

    def test_the_csv_has_all_digits_and_reads_back(self, comparison: Comparison) -> None:
        rows = {row["method"]: row for row in csv.DictReader(io.StringIO(to_csv(comparison)))}
        first, own = comparison.pairs[0], rows[comparison.pairs[0].method]
        assert tuple(own) == CSV_COLUMNS
        assert float(own["difference"]) == first.primary.mean
        assert first.primary.interval == (float(own["interval_low"]), float(own["interval_high"]))
        read_back = dict(entry.split(":") for entry in own["differences"].split())
        assert [float(gain) for gain in read_back.values()] == list(first.primary.differences)
        assert float(own["difference_area"]) == first.estimates["area"].mean

    def test_names_with_commas_quotes_and_line_ends_stay_in_their_cell(self) -> None:
        name = 'a,"b"\nc'
        runs = [RunSummary(method, 0, (0.5,)) for method in ("fedavg", name)]
        rows = list(csv.DictReader(io.StringIO(to_csv(compare(runs)), newline="")))
        assert [row["method"] for row in rows] == ["fedavg", name]

    def test_the_setting_is_named_only_if_there_are_several(self, comparison: Comparison) -> None:
        named = replace(comparison, pairs=tuple(replace(pair, setting="alpha=1") for pair in comparison.pairs))
        mixed = replace(comparison, pairs=(*comparison.pairs[:1], *named.pairs[1:]))
        assert "alpha=1" not in printed(to_table(named))
        assert "alpha=1" in printed(to_table(mixed), width=200)

    def test_markup_in_names_is_text(self) -> None:
        comparison = compare([RunSummary(name, 0, (0.5,)) for name in ("[bold]", "[red]x[/blue]")])
        assert "[red]x[/blue]" in printed(to_table(comparison))
        assert "[bold]" in printed(to_table(comparison))


def test_a_note_keeps_all_of_its_words_on_a_narrow_screen(comparison: Comparison) -> None:
    assert any("5 seeds cannot show anything" in note for note in notes(comparison))
    long = "scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)"
    pairs = (replace(comparison.pairs[0], method=long, remarks=("not converged: more rounds first",)),)
    text = printed(Answer("fedavg", pairs), width=80)
    assert "not converged: more rounds first" in " ".join(text.split())
    assert {"better", "+1.0"} <= {*text.split()}


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_in_a_terminal(comparison: Comparison, width: int) -> None:
    text = printed(to_table(comparison), width)
    assert all(cell.text in text for row in results_table(comparison).rows for cell in row if cell.value is not None)
    assert "inconclusive" in text


class TestSentence:
    def test_every_outcome(self, comparison: Comparison) -> None:
        """With t(9) = 2.2622: 10.3 -+ 2.2622 * 1.8886 / sqrt(10) is 8.949 to 11.651 tenths of a point, and
        0 -+ 2.2622 * 2.1602 / sqrt(10) is 1.545 points; five tests, and eight is the smallest n with 2/2^n below
        0.05 / 5.
        """
        assert {pair.method: sentence(pair) for pair in comparison.pairs} == {
            "clear": "Better: accuracy of clear is 1.0 points above fedavg (95 % CI 0.9 to 1.2).",
            "few": "Too few seeds: accuracy of few against fedavg is +1.0 points in the mean of 5 seeds, which cannot"
            " decide; 8 or more can.",
            "same": "Equivalent: accuracy of same and fedavg differs by less than 0.5 points (95 % CI -0.1 to 0.1).",
            "noisy": "Inconclusive: accuracy of noisy against fedavg is +0.0 points (95 % CI -1.5 to 1.5).",
            "one": "Too few seeds: accuracy of one against fedavg is +2.0 points in the mean of 1 seed, which cannot"
            " decide; 8 or more can.",
            "alone": "Too few seeds: alone and fedavg cannot be compared: no seed has a finished run on both sides;"
            " seeds 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 left out (no run of alone); seed 77 left out (no run of fedavg).",
            "constant": "Better: accuracy of constant is 2.0 points above fedavg (95 % CI 2.0 to 2.0).",
        }

    def test_the_statistics_stand_below_it(self, comparison: Comparison) -> None:
        """Five tests, so 2/2^10 * 5 = 0.00977."""
        assert details(comparison.pairs[0]) == (
            "mean accuracy of the last two rounds, larger is better, 46.0 % against 45.0 %, difference +1.0,"
            " 95 % CI 0.9 to 1.2, 10 seeds, p = 0.0098 after Holm over 5;"
            " not converged: more rounds or a larger lr first (both curves improve to the end);"
            " only 2 rounds: what counts is the mean accuracy of the last two rounds."
        )

    def test_below(self) -> None:
        worse = Estimate((-0.01,), mean=-0.0123, interval=(-0.0206, -0.004), p_holm=0.0004)
        pair = replace(pair_of(worse), verdict="worse", setting="alpha=0.1")
        assert sentence(pair) == (
            "alpha=0.1: Worse: accuracy of fedavg+ecgr is 1.2 points below fedavg (95 % CI -2.1 to -0.4)."
        )

    def test_the_metric_s_own_name_unit_and_direction(self) -> None:
        found = Estimate((-0.25,), 2.5, 2.25, mean=-0.25, interval=(-0.3, -0.2), p_holm=0.01)
        pair = replace(pair_of(found), verdict="better", metric=Quantity("mae", "years", larger_is_better=False))
        assert sentence(pair) == (
            "Better: mae of fedavg+ecgr is 0.25 years below fedavg (95 % CI -0.3 to -0.2; smaller is better)."
        )
        assert "accuracy" not in details(pair)
        assert "point" not in details(pair)

    def test_the_answer_names_every_method_once_best_first(self, comparison: Comparison) -> None:
        text = answer(comparison)
        assert text.startswith("Better than fedavg: constant (+2.0 points), clear (+1.0 points).")
        assert all(text.count(f" {name} (") == 1 for name in GAINS)
