"""The table of results, made once: a row a method, the baseline first, then the best.

Terminal, page, notebook and LaTeX show `results_table`; CSV holds the same rows with all digits; JSON holds everything.
JSON and CSV keep shares as shares of one, as the records do; what people read is in percent and points.
"""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ecgr.analysis.pairs import HEADLINE_PAIRS, LEVEL, Estimate, Pair
from ecgr.analysis.power import ALPHA, POWER
from ecgr.analysis.quantities import ACCURACY, MARGIN, Quantity
from ecgr.analysis.summaries import METRICS, PRIMARY, last5
from ecgr.analysis.verdicts import Comparison
from ecgr.report.words import answer, best_first, details, sentence, visible

OTHERS = [name for name in METRICS if name != PRIMARY]
CSV_COLUMNS = (
    *("setting", "method", "baseline", "seeds", "metric", "unit", "larger_is_better", "score"),
    *("difference", "interval_low", "interval_high", "p_holm", "effect_size", "p_equivalent", "seeds_needed"),
    *("verdict", "note", "differences", *(f"difference_{name}" for name in OTHERS)),
)
_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A method's result: its mean score over seeds, and the pair that compares it; the baseline has none."""

    setting: str
    method: str
    metric: Quantity
    seeds: int
    score: float | None
    pair: Pair | None


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, what it sorts by (the text if there is no value), and the verdict that gives it its colour."""

    text: str
    value: float | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading; numbers stand to the right."""

    label: str
    numeric: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table as plain values, whoever writes it."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Table:
    """A table from headings, of which those that end in ``#`` are over numbers.

    >>> table("", ["name", "seeds#"], []).columns[1]
    Column(label='seeds', numeric=True)
    """
    columns = (Column(heading.removesuffix("#"), heading.endswith("#")) for heading in headings)
    return Table(caption, tuple(columns), tuple(map(tuple, rows)))


def result_rows(comparison: Comparison) -> list[Row]:
    """The baseline's row and one for each pair, setting by setting."""
    rows: list[Row] = []
    pairs = best_first(comparison.pairs)
    for setting in dict.fromkeys(pair.setting for pair in pairs):
        own = [pair for pair in pairs if pair.setting == setting]
        base = [run for run in comparison.summaries if (run.setting, run.method) == (setting, comparison.baseline)]
        ends = [last5(run) for run in base]
        known = [end for end in ends if end is not None]
        mean = fmean(known) if known and len(known) == len(ends) else None
        rows.append(Row(setting, comparison.baseline, own[0].metric, len(base), mean, None))
        rows += [Row(setting, p.method, p.metric, len(p.seeds), p.primary.method_mean, p) for p in own]
    return rows


def results_table(comparison: Comparison) -> Table:
    """What everybody is shown."""
    rows = result_rows(comparison)
    several = len({row.setting for row in rows}) > 1
    described = dict.fromkeys(
        f"{row.pair.description.capitalize()}{_unit(row.metric)} ({row.metric.direction})" for row in rows if row.pair
    )
    metrics = {row.metric.name.replace("_", " ") for row in rows}
    score = metrics.pop() if len(metrics) == 1 else "score"
    return table(
        "; ".join(described) + "; p after Holm",
        [
            *("method", *(["setting"] if several else []), "seeds#", f"{score}#", "difference#"),
            *(f"{100 * LEVEL:g} % CI#", "p#", "verdict"),
        ],
        [
            [
                Cell(row.method),
                *([Cell(row.setting)] if several else []),
                Cell(str(row.seeds), row.seeds),
                Cell(row.metric.number(row.score), row.score),
                *(_pair_cells(row.pair) if row.pair else [*[Cell("")] * 3, Cell("baseline", style="baseline")]),
            ]
            for row in rows
        ],
    )


def other_readings(comparison: Comparison) -> Table:
    """Differences in the metrics that describe and do not decide."""
    pairs = best_first(comparison.pairs)
    several = len({pair.setting for pair in pairs}) > 1
    return table(
        "Other readings of the same curves: difference to the baseline; they describe and get no verdict",
        [
            *("method", *(["setting"] if several else [])),
            *(name.replace("_", " ") + (" (optimistic)" if METRICS[name].optimistic else "") + "#" for name in OTHERS),
        ],
        [
            [
                Cell(pair.method),
                *([Cell(pair.setting)] if several else []),
                *(
                    Cell(METRICS[name].change(pair.metric, m), m)
                    for name in OTHERS
                    for m in [pair.estimates[name].mean]
                ),
            ]
            for pair in pairs
        ],
    )


def verdict_class(pair: Pair) -> str:
    """The verdict as a name for styles."""
    return pair.verdict.replace(" ", "-")


def to_csv(comparison: Comparison) -> str:
    """A line a row, with all digits.

    >>> to_csv(Comparison("fedavg", ())).split(",")[:3]
    ['setting', 'method', 'baseline']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(visible(_csv_row(row, comparison.baseline)) for row in result_rows(comparison))
    return text.getvalue()


def to_latex(comparison: Comparison) -> str:
    """A ``tabular`` with booktabs rules."""
    shown = results_table(comparison)
    kinds = "".join("r" if column.numeric else "l" for column in shown.columns)
    lines = [
        f"% {latex(visible(shown.caption))}",
        f"\\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(latex(column.label) for column in shown.columns) + r" \\",
        r"\midrule",
    ]
    for row in shown.rows:
        cells = [latex(visible(cell.text)) for cell in row]
        numeric = [column.numeric for column in shown.columns]
        minus = [re.sub(r"-(?=\d)", "$-$", text) if right else text for text, right in zip(cells, numeric, strict=True)]
        lines.append(" & ".join(minus) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex(text: str) -> str:
    r"""A name as LaTeX text.

    >>> print(latex("a_b & 50%"))
    a\_b \& 50\%
    """
    one_line = " ".join(text.split())
    return "".join(_SPECIAL.get(character, character) for character in one_line if character.isprintable())


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, with stable keys; every number is finite, null where there is none or it is infinite.

    The keys are described in ``docs/reference/statistics.md``.

    >>> to_json(Comparison("fedavg", ()))["primary"]
    'last5'
    """
    quantity = comparison.pairs[0].metric if comparison.pairs else ACCURACY
    rounds = max((pair.rounds for pair in comparison.pairs), default=5)
    power = comparison.power
    return {
        "baseline": comparison.baseline,
        "answer": answer(comparison),
        "primary": PRIMARY,
        "metric": _quantity_json(quantity),
        "level": LEVEL,
        "alpha": ALPHA,
        "power": POWER,
        "margin": MARGIN,
        "headline_seeds": HEADLINE_PAIRS,
        "family": comparison.family,
        "plan": {
            "seeds": power.seeds,
            "rows": power.rows,
            "smallest_p": power.smallest_p,
            "detectable": power.detectable,
            "least_seeds": power.least_seeds,
            "sentence": power.sentence,
        },
        "metrics": {
            name: {
                "description": metric.describe(quantity, rounds),
                "unit": quantity.unit if metric.unit == "metric" else metric.unit,
                "lower_is_better": metric.lower_is_better(quantity),
                "optimistic": metric.optimistic,
            }
            for name, metric in METRICS.items()
        },
        "pairs": [_pair_json(pair) for pair in comparison.pairs],
    }


def _unit(quantity: Quantity) -> str:
    if quantity.is_share:
        return ", in percent and points"
    return f", in {quantity.unit}" if quantity.unit else ""


def _pair_cells(pair: Pair) -> list[Cell]:
    found, metric = pair.primary, pair.metric
    low = found.interval and found.interval[0]
    return [
        Cell(metric.change(found.mean), found.mean),
        Cell("-" if found.interval is None else metric.range(found.interval), low),
        Cell("-" if found.p_holm is None else f"{found.p_holm:.2g}", found.p_holm),
        Cell(pair.verdict, style=verdict_class(pair)),
    ]


def _csv_row(row: Row, baseline: str) -> Mapping[str, Any]:
    values: dict[str, Any] = {
        "setting": row.setting,
        "method": row.method,
        "baseline": baseline,
        "seeds": row.seeds,
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "larger_is_better": row.metric.larger_is_better,
        "score": row.score,
        "verdict": "baseline",
    }
    if (pair := row.pair) is None:
        return values
    low, high = pair.primary.interval or (None, None)
    differences = zip(pair.seeds, pair.primary.differences, strict=True)
    return values | {
        "difference": pair.primary.mean,
        "interval_low": low,
        "interval_high": high,
        "p_holm": pair.primary.p_holm,
        "effect_size": _finite(pair.primary.dz),
        "p_equivalent": pair.primary.p_equivalent,
        "seeds_needed": pair.seeds_needed,
        "verdict": pair.verdict,
        "note": pair.note,
        "differences": " ".join(f"{seed}:{'' if gain is None else repr(gain)}" for seed, gain in differences),
        **{f"difference_{name}": pair.estimates[name].mean for name in OTHERS},
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "setting": pair.setting,
        "method": pair.method,
        "baseline": pair.baseline,
        "metric": _quantity_json(pair.metric),
        "verdict": pair.verdict,
        "difference": pair.primary.mean,
        "interval": None if pair.primary.interval is None else list(pair.primary.interval),
        "note": pair.note,
        "sentence": sentence(pair),
        "details": details(pair),
        "exploratory": pair.exploratory,
        "rounds": pair.rounds,
        "rising": list(pair.rising),
        "chance": pair.chance,
        "margin": pair.margin,
        "seeds": list(pair.seeds),
        "left_out": [{"seed": seed, "reason": reason} for seed, reason in pair.left_out.items()],
        "seeds_needed": pair.seeds_needed,
        "target": pair.target,
        "metrics": {name: _estimate_json(estimate) for name, estimate in pair.estimates.items()},
    }


def _quantity_json(quantity: Quantity) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit, "larger_is_better": quantity.larger_is_better}


def _estimate_json(estimate: Estimate) -> dict[str, Any]:
    return {
        "baseline_mean": estimate.baseline_mean,
        "method_mean": estimate.method_mean,
        "mean_difference": estimate.mean,
        "differences": list(estimate.differences),
        "interval": None if estimate.interval is None else list(estimate.interval),
        "p": estimate.p,
        "p_holm": estimate.p_holm,
        "p_least": estimate.p_least,
        "effect_size": _finite(estimate.dz),
        "p_equivalent": estimate.p_equivalent,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
