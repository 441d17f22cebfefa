"""What is written and shown says what was found, and nothing more."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from ecgr.analysis.comparison import Comparison, Estimate, Pair, compare
from ecgr.analysis.metrics import METRICS, PRIMARY, RunSummary
from ecgr.report.presentation import (
    CSV_COLUMNS,
    sentence,
    to_csv,
    to_json,
    to_secondary_table,
    to_table,
)

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


def printed(table: Table, width: int = 100) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def pair_of(estimate: Estimate, seeds: int = 10) -> Pair:
    return Pair("", "fedavg", "ecgr", "none", tuple(range(seeds)), {}, None, {PRIMARY: estimate})


class TestJson:
    def test_survives_strict_json_unchanged(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert json.loads(json.dumps(written, allow_nan=False)) == written

    def test_keys_are_stable(self, comparison: Comparison) -> None:
        written = to_json(comparison)
        assert set(written) == {
            *("baseline", "primary", "level", "alpha", "power", "margin", "headline_seeds", "family"),
            *("metrics", "pairs"),
        }
        for pair in written["pairs"]:
            assert set(pair) == {
                *("setting", "algorithm", "regulator", "baseline", "verdict", "note", "sentence", "exploratory"),
                *("seeds", "left_out", "seeds_needed", "target", "metrics"),
            }
            assert set(pair["metrics"]) == set(METRICS)
            for estimate in pair["metrics"].values():
                assert set(estimate) == {
                    *("baseline_mean", "regulated_mean", "mean_difference", "differences", "interval"),
                    *("p", "p_holm", "effect_size", "p_equivalent"),
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
        (number,) = [i for i, line in enumerate(lines) if line.startswith(" fedavg, ecgr")]
        assert lines[number].split()[2:] == ["10", "45.00", "+1.03", "0.0098", "+4.98", "better"]
        assert lines[number + 1].split() == ["+0.89", "to", "+1.17"]
        assert any("5 seeds cannot reach p < 0.05" in line for line in lines)
        rows = [line for line in lines if line.startswith(tuple(f" {name}, ecgr" for name in GAINS))]
        assert len(rows) == len(GAINS)

    def test_secondary_metrics_are_marked(self, comparison: Comparison) -> None:
        text = printed(to_secondary_table(comparison))
        assert "no verdict" in text
        assert "(optimistic)" in text
        assert all(name.split("_", maxsplit=1)[0] in text for name in METRICS if name != PRIMARY)

    def test_the_setting_is_named_only_if_there_are_several(self, comparison: Comparison) -> None:
        named = replace(comparison, pairs=tuple(replace(pair, setting="alpha=1") for pair in comparison.pairs))
        mixed = replace(comparison, pairs=(*comparison.pairs[:1], *named.pairs[1:]))
        assert "alpha=1" not in printed(to_table(named))
        assert "alpha=1" in printed(to_table(mixed))

    def test_markup_in_names_is_text(self) -> None:
        runs = [RunSummary("[red]x[/blue]", name, 0, (0.5,)) for name in ("[bold]", "[/]")]
        comparison = compare(runs, baseline="[bold]")
        for table in (to_table(comparison), to_secondary_table(comparison)):
            assert "[red]x[/blue]" in printed(table)
            assert "[bold]" in printed(table)


class TestSentence:
    def test_every_outcome(self, comparison: Comparison) -> None:
        """With t(9) = 2.2622: 10.3 -+ 2.2622 * 1.8886 / sqrt(10) is 8.949 to 11.651 tenths of a point, and
        0 -+ 2.2622 * 2.1602 / sqrt(10) is 1.545 points; five tests, so 2/2^10 * 5 = 0.00977, and eight is the
        smallest n with 2/2^n below 0.05 / 5.
        """
        sentences = {pair.algorithm: sentence(pair) for pair in comparison.pairs}
        assert sentences == {
            "fedavg": "fedavg: ecgr ended 1.03 points above none"
            " (95 % CI +0.89 to +1.17, 10 seeds, p = 0.00977 after Holm).",
            "fedprox": "fedprox: no difference shown between ecgr and none"
            " (+1.00 points, 95 % CI +0.80 to +1.20, 5 seeds, p = 0.188 after Holm;"
            " 8 seeds would give 80 % power at this effect):"
            " the interval excludes zero, but 5 seeds cannot reach p < 0.05 (smallest possible 0.0625);"
            " exploratory: fewer than 10 seeds.",
            "fednova": "fednova: ecgr and none are equivalent within ±0.5 points"
            " (+0.00 points, 95 % CI -0.05 to +0.05, 10 seeds, equivalence p < 0.001).",
            "scaffold": "scaffold: no difference shown between ecgr and none"
            " (+0.00 points, 95 % CI -1.55 to +1.55, 10 seeds, p = 1 after Holm).",
            "fedadam": "fedadam: no difference shown between ecgr and none (+2.00 points, 1 seed):"
            " one pair tells nothing about chance.",
            "fedyogi": "fedyogi: ecgr and none cannot be compared:"
            " no seed has a finished run on both sides; seed 0 left out (no run of none).",
            "constant": "constant: ecgr ended 2.00 points above none"
            " (95 % CI +2.00 to +2.00, 10 seeds, p = 0.00977 after Holm).",
        }

    def test_below(self) -> None:
        worse = Estimate(mean=-0.0123, interval=(-0.0206, -0.004), p_holm=0.0004)
        assert sentence(replace(pair_of(worse), verdict="worse", setting="alpha=0.1")) == (
            "fedavg (alpha=0.1): ecgr ended 1.23 points below none"
            " (95 % CI -2.06 to -0.40, 10 seeds, p < 0.001 after Holm)."
        )
