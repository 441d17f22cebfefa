"""What is written and shown says what was found, and nothing more."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from ecgr.analysis.comparison import Comparison, Estimate, Pair, compare
from ecgr.analysis.metrics import METRICS, PRIMARY, RunSummary
from ecgr.analysis.quantities import Quantity
from ecgr.report.answer import Answer
from ecgr.report.presentation import CSV_COLUMNS, to_csv, to_json, to_notes, to_table
from ecgr.report.sentences import answer, details, sentence

GAINS = {
    "fedavg": (0.010, 0.012, 0.009, 0.011, 0.008, 0.013, 0.010, 0.012, 0.007, 0.011),
    "fedprox": (0.01, 0.012, 0.009, 0.011, 0.008),
    "fednova": (0.001, -0.001, 0.0005, -0.0005, 0.0) * 2,
    "scaffold": (0.03, -0.03, 0.02, -0.01, 0.01, -0.02, 0.03, -0.01, 0.0, -0.02),
    "fedadam": (0.02,),
    "fedyogi": (),
    "constant": (0.02,) * 10,
}


@pytest.fixture
def comparison() -> Comparison:
    def runs() -> Iterator[RunSummary]:
        for algorithm, gains in GAINS.items():
            for seed, gain in enumerate(gains):
                yield RunSummary(algorithm, "none", seed, (0.4, 0.5), (None, 0.25))
                yield RunSummary(algorithm, "ecgr", seed, (0.4 + gain, 0.5 + gain), (None, 0.25 + gain))
        yield RunSummary("fedyogi", "ecgr", 0, (0.4, 0.5))

    return compare(runs())


def printed(table: RenderableType, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pair_of(estimate: Estimate, seeds: int = 10) -> Pair:
    return Pair(
        *("", "fedavg", "ecgr", "none", tuple(range(seeds)), {}, None, {PRIMARY: estimate}),
        method="fedavg+ecgr",
        baseline_method="fedavg",
    )


class TestJson:
    def test_survives_strict_json_unchanged(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert json.loads(json.dumps(written, allow_nan=False)) == written

    def test_keys_are_stable(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert set(written) == {
            *("baseline", "by", "answer", "primary", "metric", "level", "alpha", "power", "margin", "headline_seeds"),
            *("family", "design", "metrics", "pairs", "length_curves"),
        }
        for pair in written["pairs"]:
            assert set(pair) == {
                *("setting", "algorithm", "regulator", "baseline", "verdict", "note", "sentence", "exploratory"),
                *("seeds", "left_out", "seeds_needed", "target", "metrics", "causes"),
                *("method", "baseline_method", "metric", "cause", "details", "rounds", "rising", "chance", "margin"),
                "length",
            }
            assert set(pair["metrics"]) == set(METRICS)
            for estimate in pair["metrics"].values():
                assert set(estimate) == {
                    *("baseline_mean", "regulated_mean", "mean_difference", "differences", "interval"),
                    *("p", "p_holm", "p_least", "effect_size", "p_equivalent"),
                }

    def test_an_infinite_effect_is_null(self, comparison: Comparison) -> None:
        constant = comparison.pairs[5]
        assert constant.primary.dz == math.inf
        assert to_json(comparison)["pairs"][5]["metrics"][PRIMARY]["effect_size"] is None

    def test_the_sentence_is_that_of_the_pair(self, comparison: Comparison) -> None:
        written = [pair["sentence"] for pair in to_json(comparison)["pairs"]]
        assert written == [sentence(pair) for pair in comparison.pairs]


class TestCsv:
    def test_a_line_for_each_pair_and_metric_that_reads_back(self, comparison: Comparison) -> None:
        rows = list(csv.DictReader(io.StringIO(to_csv(comparison))))
        assert len(rows) == len(comparison.pairs) * len(METRICS)
        assert tuple(rows[0]) == CSV_COLUMNS
        first = comparison.pairs[0]
        assert float(rows[0]["mean_difference"]) == first.primary.mean
        assert first.primary.interval == (float(rows[0]["interval_low"]), float(rows[0]["interval_high"]))
        assert rows[0]["verdict"] == "better"
        read_back = dict(entry.split(":") for entry in rows[0]["differences"].split())
        assert [float(gain) for gain in read_back.values()] == list(first.primary.differences)

    def test_only_the_primary_metric_has_a_verdict(self, comparison: Comparison) -> None:
        rows = csv.DictReader(io.StringIO(to_csv(comparison)))
        assert {row["metric"] for row in rows if row["verdict"]} == {PRIMARY}

    def test_names_with_commas_quotes_and_line_ends_stay_in_their_cell(self) -> None:
        name = 'a,"b"\nc'
        runs = [RunSummary(name, regulator, 0, (0.5,)) for regulator in ("none", "ecgr")]
        rows = list(csv.DictReader(io.StringIO(to_csv(compare(runs)), newline="")))
        assert {row["algorithm"] for row in rows} == {name}


class TestTables:
    def test_a_pair_and_its_interval_below_the_difference(self, comparison: Comparison) -> None:
        lines = [line.rstrip() for line in printed(to_table(comparison)).splitlines()]
        (number,) = [i for i, line in enumerate(lines) if line.startswith(" fedavg+ecgr ")]
        assert lines[number].split()[1:] == ["10", "45.00", "+1.03", "0.0098", "+4.98", "better"]
        assert lines[number + 1].split() == ["+0.89", "to", "+1.17"]
        rows = [line for line in lines if line.startswith(tuple(f" {name}+ecgr " for name in GAINS))]
        assert [row.split("+")[0].strip() for row in rows] == [
            *("fedadam", "constant", "fedavg", "fedprox", "fednova", "scaffold", "fedyogi")
        ]  # best first, what cannot be compared last

    def test_a_note_keeps_all_of_its_words_on_a_narrow_screen(self, comparison: Comparison) -> None:
        assert "5 seeds cannot show anything" in " ".join(printed(to_notes(comparison)).split())
        long = "scaffold(damping=0.5, units=gradient)/lookahead(momentum=0.7)"
        pairs = (replace(comparison.pairs[0], method=long, remarks=("not converged: more rounds first",)),)
        text = printed(Answer(replace(comparison, pairs=pairs), ()), width=80)
        assert "not converged: more rounds first" in " ".join(text.split())

    def test_a_cause_keeps_all_of_its_words_on_a_narrow_screen(self, comparison: Comparison) -> None:
        pair = next(pair for pair in comparison.pairs if pair.verdict == "better")
        wide = replace(pair.primary, interval=(-0.2652, 0.1199))
        one = replace(pair, cause="both", tuned=("lr=1", "lr=2"), estimates={**pair.estimates, PRIMARY: wide})
        words = printed(to_table(replace(comparison, pairs=(one,))), width=80)
        assert {"direction", "tuning", "step", "length", "better", "-26.52", "+11.99"} <= {*words.split()}

    def test_the_setting_is_named_only_if_there_are_several(self, comparison: Comparison) -> None:
        named = replace(comparison, pairs=tuple(replace(pair, setting="alpha=1") for pair in comparison.pairs))
        mixed = replace(comparison, pairs=(*comparison.pairs[:1], *named.pairs[1:]))
        assert "alpha=1" not in printed(to_table(named))
        assert "alpha=1" in printed(to_table(mixed))

    def test_markup_in_names_is_text(self) -> None:
        runs = [RunSummary("[red]x[/blue]", name, 0, (0.5,)) for name in ("[bold]", "[/]")]
        comparison = compare(runs, baseline="[bold]")
        assert "[red]x[/blue]+[/]" in printed(to_table(comparison))
        assert "[red]x[/blue]+[bold]" in printed(to_table(comparison))


class TestSentence:
    def test_every_outcome(self, comparison: Comparison) -> None:
        """With t(9) = 2.2622: 10.3 -+ 2.2622 * 1.8886 / sqrt(10) is 8.949 to 11.651 tenths of a point, and
        0 -+ 2.2622 * 2.1602 / sqrt(10) is 1.545 points; five tests, and eight is the smallest n with 2/2^n below
        0.05 / 5.
        """
        assert {pair.algorithm: sentence(pair) for pair in comparison.pairs} == {
            "fedavg": "Better: fedavg+ecgr ended 1.03 points above fedavg (accuracy), likely between +0.89 and +1.17.",
            "fedprox": "Too few seeds: fedprox+ecgr over fedprox is +1.00 points (accuracy) in the mean of 5 seeds,"
            " which cannot decide; 8 or more can.",
            "fednova": "Equivalent: fednova+ecgr and fednova differ by less than 0.50 points (accuracy),"
            " likely between -0.05 and +0.05 points.",
            "scaffold": "Not decided: any effect of scaffold+ecgr over scaffold is likely between -1.55 and +1.55"
            " points (accuracy).",
            "fedadam": "Too few seeds: fedadam+ecgr over fedadam is +2.00 points (accuracy) in the mean of 1 seed,"
            " which cannot decide; 8 or more can.",
            "fedyogi": "Too few seeds: fedyogi+ecgr and none cannot be compared:"
            " no seed has a finished run on both sides; seed 0 left out (no run of none).",
            "constant": "Better: constant+ecgr ended 2.00 points above constant (accuracy),"
            " likely between +2.00 and +2.00.",
        }

    def test_the_statistics_stand_below_it(self, comparison: Comparison) -> None:
        """Five tests, so 2/2^10 * 5 = 0.00977."""
        assert details(comparison.pairs[0]) == (
            "mean accuracy of the last two rounds, larger is better, 46.03 % against 45.00 %, difference +1.03,"
            " 95 % CI +0.89 to +1.17, 10 seeds, p = 0.00977 after Holm over 5;"
            " not converged: more rounds or a larger lr first (both curves improve to the end);"
            " only 2 rounds: what counts is the mean accuracy of the last two rounds."
        )

    def test_below_and_why(self) -> None:
        worse = Estimate((-0.01,), mean=-0.0123, interval=(-0.0206, -0.004), p_holm=0.0004)
        pair = replace(pair_of(worse), verdict="worse", setting="alpha=0.1", cause="both")
        assert sentence(pair) == (
            "alpha=0.1: Worse: fedavg+ecgr ended 1.23 points below fedavg (accuracy), likely between -2.06 and -0.40;"
            " both by direction and by step length."
        )

    def test_the_metric_s_own_name_unit_and_direction(self) -> None:
        found = Estimate((-0.25,), 2.5, 2.25, mean=-0.25, interval=(-0.3, -0.2), p_holm=0.01)
        pair = replace(pair_of(found), verdict="better", metric=Quantity("mae", "years", larger_is_better=False))
        assert sentence(pair) == (
            "Better: fedavg+ecgr ended 0.25 years below fedavg (mae, smaller is better), likely between -0.3 and -0.2."
        )
        assert "accuracy" not in details(pair)
        assert "point" not in details(pair)

    def test_the_answer_names_every_method_once_best_first(self, comparison: Comparison) -> None:
        text = answer(comparison)
        assert text.startswith("Better than its baseline: constant+ecgr (+2.00 points), fedavg+ecgr (+1.03 points).")
        assert all(text.count(f"{name}+ecgr") == 1 for name in GAINS)
