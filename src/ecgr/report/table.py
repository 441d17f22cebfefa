"""The table of results, made once: a row a method, the baseline first, then the best, then the references.

Terminal, page, notebook and LaTeX show `results_table`; CSV holds the same rows with all digits; JSON holds everything.
JSON and CSV keep shares as shares of one, as the records do; what people read is in percent and points.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from ecgr.analysis.comparison import Comparison, Reference
from ecgr.analysis.curves import LEVEL, Estimate
from ecgr.analysis.findings import Pair
from ecgr.analysis.own import own_data
from ecgr.analysis.power import ALPHA
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.report.words import advice, by_setting, cautions, count, factor, sentence, visible, worth

CSV_COLUMNS = (
    *("setting", "method", "baseline", "seeds", "rounds", "metric", "unit", "larger_is_better", "score"),
    *("difference", "interval_low", "interval_high", "p_holm", "factor", "factor_low", "factor_high", "factor_p_holm"),
    *("levelled_off", "gap_closed", "verdict", "differences"),
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
    pair: Pair | None = None
    kind: str = "baseline"


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
    """The baseline's row, one for each pair, one for each reference, setting by setting."""
    rows: list[Row] = []
    for setting, own in by_setting(comparison).items():
        base = [run.end for run in comparison.summaries if (run.method, run.setting) == (comparison.baseline, setting)]
        known = [end for end in base if end is not None]
        mean = fmean(known) if known and len(known) == len(base) else own[0].baseline_score
        metric = own[0].metric
        rows.append(Row(setting, comparison.baseline, metric, len(base), mean))
        rows += [Row(setting, p.method, metric, len(p.seeds), p.score, p, p.verdict) for p in own]
        rows += [
            Row(setting, ref.name, metric, len(ref.difference.differences), ref.score, kind="reference")
            for ref in comparison.references
            if ref.setting == setting
        ]
    return rows


def results_table(comparison: Comparison, references: bool = True) -> Table:
    """What everybody is shown."""
    rows = [row for row in result_rows(comparison) if references or row.kind != "reference"]
    several = len({row.setting for row in rows}) > 1
    metrics = {row.metric.name.replace("_", " ") for row in rows}
    score = metrics.pop().removesuffix(" on clients' own data") if len(metrics) == 1 else "score"
    return table(
        _caption(comparison),
        ["method", *(["setting"] if several else []), f"{score}#", "difference#", "sooner#", "verdict"],
        [
            [
                Cell(row.method),
                *([Cell(row.setting)] if several else []),
                Cell(row.metric.number(row.score), row.score),
                *(_pair_cells(row.pair) if row.pair else [Cell(""), Cell("")]),
                Cell(row.kind, style=row.kind.replace(" ", "-")),
            ]
            for row in rows
        ],
    )


def statistics_table(comparison: Comparison) -> Table:
    """What the verdicts rest on."""
    pairs = [pair for pairs in by_setting(comparison).values() for pair in pairs]
    several = len({pair.setting for pair in pairs}) > 1
    return table(
        f"p after Holm over {count(comparison.family, 'test')}; mean rounds of arrival; whether both levelled off",
        [
            *("method", *(["setting"] if several else [])),
            *("seeds#", "p, end#", "p, speed#", "arrives#", "baseline#", "level"),
        ],
        [
            [
                Cell(pair.method),
                *([Cell(pair.setting)] if several else []),
                Cell(str(len(pair.seeds)), len(pair.seeds)),
                _p_cell(pair.difference),
                _p_cell(None if pair.speed is None else pair.speed.log),
                *(Cell(f"{number:.0f}", number) for number in (pair.speed.rounds if pair.speed else ())),
                *([Cell("-")] * (0 if pair.speed else 2)),
                Cell("yes" if pair.levelled_off else "no"),
            ]
            for pair in pairs
        ],
    )


SHORT = {"optimizer.lr": "lr", "server.lr": "server step", "algorithm.server_lr": "server step"}
"""Tuned keys, as a table has them."""


def tuning_table(comparison: Comparison) -> Table | None:
    """What tuning chose for each method, and how many of its seeds agree; None where nothing was tuned."""
    if not comparison.tuning:
        return None
    rows = []
    for method, own in comparison.tuning.items():
        chosen = ", ".join(f"{SHORT.get(key, key)} {value:.3g}" for key, value in own["chosen"].items())
        agreeing = f"{own['agreeing']} of {len(own['without'])}" if own["without"] else "-"
        cells = [Cell(method), Cell(chosen or "as it is"), Cell(str(len(own["trials"])), len(own["trials"]))]
        rows.append([*cells, Cell(agreeing, own["agreeing"])])
    return table(
        "What tuning chose; agreeing: of the choices without one tuning seed each, how many are the same",
        ["method", "chosen", "trials#", "agreeing#"],
        rows,
    )


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
    """Everything, with stable keys; every number is finite, null where there is none.

    The keys are described in ``docs/reference/statistics.md``.

    >>> to_json(Comparison("fedavg", ()))["pairs"]
    []
    """
    pairs, runs = comparison.pairs, comparison.summaries
    return {
        "advice": advice(comparison),
        "baseline": comparison.baseline,
        "metric": _quantity_json(pairs[0].metric if pairs else ACCURACY),
        "margin": pairs[0].margin if pairs else None,
        "rounds": max((run.rounds for run in runs), default=0),
        "seeds": sorted({run.seed for run in runs}),
        "tuned": comparison.tuned,
        "rates": comparison.rates(),
        "tuning": {
            method: {"chosen": own["chosen"], "agreeing": own["agreeing"], "seeds": len(own["without"])}
            for method, own in comparison.tuning.items()
        },
        "level": LEVEL,
        "alpha": ALPHA,
        "tests": comparison.family,
        "references": [_reference_json(reference) for reference in comparison.references],
        **({"own_data": own} if (own := [asdict(each) for each in own_data(comparison.summaries)]) else {}),
        "worth": worth(comparison),
        "cautions": cautions(comparison),
        "pairs": [_pair_json(pair) for pair in pairs],
    }


def _caption(comparison: Comparison) -> str:
    pairs = comparison.pairs
    rounds = sorted({pair.rounds for pair in pairs})
    seeds = sorted({len(pair.seeds) for pair in pairs})
    units = dict.fromkeys(
        f"in {pair.metric.difference_unit}" if pair.metric.difference_unit else "in its own unit" for pair in pairs
    )
    directions = dict.fromkeys(pair.metric.direction for pair in pairs if not pair.metric.larger_is_better)
    own = dict.fromkeys(pair.metric.name.replace("_", " ") for pair in pairs if pair.metric.name.endswith("own data"))
    return ", ".join(
        [
            f"After {_span(rounds, 'round')}",
            *own,
            _span(seeds, "seed"),
            *directions,
            f"differences {' or '.join(units)} with {100 * LEVEL:g} % CI",
        ]
    )


def _span(numbers: Sequence[int], what: str) -> str:
    if len(numbers) > 1:
        return f"{numbers[0]} to {count(numbers[-1], what)}"
    return count(numbers[0] if numbers else 0, what)


def _pair_cells(pair: Pair) -> list[Cell]:
    found, metric = pair.difference, pair.metric
    if found is None:
        return [Cell("-"), Cell("-")]
    spread = "" if found.interval is None else f" ({metric.range(found.interval)})"
    speed = factor(pair)
    if pair.speed and not speed:
        late = pair.speed.late
        speed = "-" if late < pair.speed.late_baseline else f"{len(pair.seeds) - late} of {len(pair.seeds)} arrive"
    return [
        Cell(f"{metric.change(found.mean, found.interval)}{spread}", found.mean),
        Cell(speed, pair.speed.factor if pair.speed else None),
    ]


def _p_cell(found: Estimate | None) -> Cell:
    p = None if found is None else found.p_holm
    return Cell("-" if p is None else f"{p:.2g}", p)


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
        "verdict": row.kind,
    }
    if (pair := row.pair) is None:
        return values
    found, speed = pair.difference, pair.speed
    low, high = (found and found.interval) or (None, None)
    slowest, fastest = (speed and speed.interval) or (None, None)
    return values | {
        "rounds": pair.rounds,
        "difference": found and found.mean,
        "interval_low": low,
        "interval_high": high,
        "p_holm": found and found.p_holm,
        "factor": speed and speed.factor,
        "factor_low": slowest,
        "factor_high": fastest,
        "factor_p_holm": speed and speed.log and speed.log.p_holm,
        "levelled_off": pair.levelled_off,
        "gap_closed": pair.gap_closed,
        "differences": " ".join(f"{seed}:{gain!r}" for seed, gain in _by_seed(pair).items()),
    }


def _by_seed(pair: Pair) -> dict[int, float]:
    return {} if pair.difference is None else dict(zip(pair.seeds, pair.difference.differences, strict=True))


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "setting": pair.setting,
        "method": pair.method,
        "baseline": pair.baseline,
        "verdict": pair.verdict,
        "sentence": sentence(pair),
        "seeds": list(pair.seeds),
        "rounds": pair.rounds,
        "metric": _quantity_json(pair.metric),
        "margin": pair.margin,
        "score": pair.score,
        "baseline_score": pair.baseline_score,
        "difference": _estimate_json(pair.difference, pair.seeds),
        "speed": _speed_json(pair),
        "levelled_off": pair.levelled_off,
        "rising": list(pair.rising),
        "gap_closed": pair.gap_closed,
        "diverged": list(pair.failed),
        "at_chance": list(pair.at_chance),
        "left_out": [{"seed": seed, "reason": reason} for seed, reason in pair.left_out.items()],
    }


def _estimate_json(found: Estimate | None, seeds: Sequence[int]) -> dict[str, Any] | None:
    if found is None:
        return None
    by_seed = zip(seeds, found.differences, strict=True)
    return {
        "mean": found.mean,
        "interval": None if found.interval is None else list(found.interval),
        "p": found.p,
        "p_holm": found.p_holm,
        "by_seed": {str(seed): value for seed, value in by_seed},
    }


def _speed_json(pair: Pair) -> dict[str, Any] | None:
    if (speed := pair.speed) is None:
        return None
    return {
        "factor": speed.factor,
        "interval": None if speed.interval is None else list(speed.interval),
        "p": speed.log and speed.log.p,
        "p_holm": speed.log and speed.log.p_holm,
        "shown": pair.sooner,
        "target": speed.target,
        "rounds": {"method": speed.rounds[0], "baseline": speed.rounds[1]},
        "late": {"method": speed.late, "baseline": speed.late_baseline},
    }


def _reference_json(reference: Reference) -> dict[str, Any]:
    found = reference.difference
    return {
        "name": reference.name,
        "setting": reference.setting,
        "score": reference.score,
        "difference": {"mean": found.mean, "interval": None if found.interval is None else list(found.interval)},
        "seeds": len(found.differences),
    }


def _quantity_json(quantity: Quantity) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit, "larger_is_better": quantity.larger_is_better}
