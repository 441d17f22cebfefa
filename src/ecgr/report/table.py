"""The table of results, made once: a row a method, the baseline first, then the best, then the references.

Terminal, page, notebook and LaTeX show `results_table`; CSV holds the same rows with all digits; JSON holds everything.
JSON and CSV keep shares as shares of one, as the records do; what people read is in percent and points.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.curves import LEVEL
from ecgr.analysis.findings import Pair
from ecgr.analysis.power import ALPHA
from ecgr.analysis.quantities import ACCURACY, Quantity, count
from ecgr.analysis.summaries import mean_or_none, own_data
from ecgr.report.words import advice, by_setting, cautions, factor, sentence, visible, worth

CSV = {
    **{name: name for name in ("setting", "method", "baseline", "seeds")},
    "rounds": "pair.rounds",
    **{"metric": "metric.name", "unit": "metric.unit", "larger_is_better": "metric.larger_is_better"},
    "score": "score",
    "difference": "pair.difference.mean",
    **{"interval_low": "pair.difference.interval.0", "interval_high": "pair.difference.interval.1"},
    "p_holm": "pair.difference.p_holm",
    "factor": "pair.speed.factor",
    **{"factor_low": "pair.speed.interval.0", "factor_high": "pair.speed.interval.1"},
    "factor_p_holm": "pair.speed.log.p_holm",
    **{name: f"pair.{name}" for name in ("levelled_off", "gap_closed")},
    "verdict": "kind",
    "differences": "differences",
}
"""The columns of ``comparison.csv``, and where a row has them."""
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
    """A method's result: its mean score over seeds, and the pair that compares it with the baseline.

    ``kind`` is the verdict; the baseline and the references, which have no pair, are called that.
    """

    setting: str
    baseline: str
    metric: Quantity
    method: str
    seeds: int
    score: float | None
    kind: str
    pair: Pair | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """That of the difference, put where the baseline ended."""
        if self.pair is None or self.pair.difference is None or self.pair.difference.interval is None:
            return None
        low, high = self.pair.difference.interval
        base = self.pair.baseline_score or 0.0
        return base + low, base + high

    @property
    def differences(self) -> str:
        return " ".join(f"{seed}:{gain!r}" for seed, gain in (self.pair.by_seed if self.pair else {}).items())


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown, what it sorts by (the text if there is no value), and the verdict that gives it its colour."""

    text: str
    value: float | None = None
    style: str = ""


Value = Cell | str | int
"""What a cell is made of."""


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


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Value]]) -> Table:
    """A table from headings: those that end in ``#`` are over numbers, ``?`` is left out where its cells are alike.

    >>> made = table("", ["name", "setting?", "seeds#"], [["a", "", 3], ["b", "", 2]])
    >>> made.columns[1], made.rows[0][1]
    (Column(label='seeds', numeric=True), Cell(text='3', value=3, style=''))
    """
    cells = [[cell if isinstance(cell, Cell) else _cell(cell) for cell in row] for row in rows]
    shown = [
        place
        for place, heading in enumerate(headings)
        if not heading.endswith("?") or len({row[place].text for row in cells}) > 1
    ]
    columns = (Column(re.sub("[#?]$", "", headings[place]), headings[place].endswith("#")) for place in shown)
    return Table(caption, tuple(columns), tuple(tuple(row[place] for place in shown) for row in cells))


def _cell(value: str | int) -> Cell:
    return Cell(value) if isinstance(value, str) else Cell(str(value), value)


def result_rows(comparison: Comparison) -> list[Row]:
    """The baseline's row, one for each pair, one for each reference, setting by setting."""
    rows: list[Row] = []
    for setting, pairs in by_setting(comparison).items():
        row = partial(Row, setting, comparison.baseline, pairs[0].metric)
        base = [run.end for run in comparison.summaries if (run.method, run.setting) == (comparison.baseline, setting)]
        mean = mean_or_none(base)
        rows.append(row(comparison.baseline, len(base), pairs[0].baseline_score if mean is None else mean, "baseline"))
        rows += [row(pair.method, len(pair.seeds), pair.score, pair.verdict, pair) for pair in pairs]
        rows += [
            row(ref.name, len(ref.difference.differences), ref.score, "reference")
            for ref in comparison.references
            if ref.setting == setting
        ]
    return rows


def results_table(comparison: Comparison, references: bool = True) -> Table:
    """What everybody is shown."""
    rows = [row for row in result_rows(comparison) if references or row.kind != "reference"]
    metrics = {row.metric.words for row in rows}
    score = metrics.pop().removesuffix(" on clients' own data") if len(metrics) == 1 else "score"
    return table(
        _caption(comparison),
        ["method", "setting?", f"{score}#", "difference#", "sooner#", "verdict"],
        [
            [
                row.method,
                row.setting,
                Cell(row.metric.number(row.score), row.score),
                *(_pair_cells(row.pair) if row.pair else ("", "")),
                Cell(row.kind, style=row.kind.replace(" ", "-")),
            ]
            for row in rows
        ],
    )


SHORT = {"optimizer.lr": "lr", "server.lr": "server step", "algorithm.server_lr": "server step"}
"""Tuned keys, as a table has them."""


def tuning_table(comparison: Comparison) -> Table | None:
    """What tuning chose for each method, and how many of its seeds agree; None where nothing was tuned."""
    if not comparison.tuning:
        return None
    rows: list[list[Value]] = []
    for method, own in comparison.tuning.items():
        chosen = ", ".join(f"{SHORT.get(key, key)} {value:.3g}" for key, value in own["chosen"].items())
        agreeing = f"{own['agreeing']} of {len(own['without'])}" if own["without"] else "-"
        rows.append([method, chosen or "as it is", len(own["trials"]), Cell(agreeing, own["agreeing"])])
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
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV)
    writer.writerows(visible([_at(row, path) for path in CSV.values()]) for row in result_rows(comparison))
    return text.getvalue()


def _at(value: Any, path: str) -> Any:
    """What lies at a dotted path; None where something on the way is None."""
    for name in path.split("."):
        if value is None:
            return None
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    return value


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
        texts = [latex(visible(cell.text)) for cell in row]
        for place, column in enumerate(shown.columns):
            if column.numeric:
                texts[place] = re.sub(r"-(?=\d)", "$-$", texts[place])
        lines.append(" & ".join(texts) + r" \\")
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
        "metric": asdict(pairs[0].metric if pairs else ACCURACY),
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
        "references": [
            {
                "name": reference.name,
                "setting": reference.setting,
                "score": reference.score,
                "difference": {"mean": reference.difference.mean, "interval": reference.difference.interval},
                "seeds": len(reference.difference.differences),
            }
            for reference in comparison.references
        ],
        **({"own_data": own} if (own := [asdict(each) for each in own_data(comparison.summaries)]) else {}),
        "worth": worth(comparison),
        "cautions": cautions(comparison),
        "pairs": [_pair_json(pair) for pair in pairs],
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    found, speed = pair.difference, pair.speed
    difference = found and {
        "mean": found.mean,
        "interval": found.interval,
        "p": found.p,
        "p_holm": found.p_holm,
        "by_seed": {str(seed): gain for seed, gain in pair.by_seed.items()},
    }
    sooner = speed and {
        "factor": speed.factor,
        "interval": speed.interval,
        "p": speed.log and speed.log.p,
        "p_holm": speed.log and speed.log.p_holm,
        "shown": pair.sooner,
        "target": speed.target,
        "rounds": dict(zip(("method", "baseline"), speed.rounds, strict=True)),
        "late": {"method": speed.late, "baseline": speed.late_baseline},
    }
    return {
        "setting": pair.setting,
        "method": pair.method,
        "baseline": pair.baseline,
        "verdict": pair.verdict,
        "sentence": sentence(pair),
        "seeds": pair.seeds,
        "rounds": pair.rounds,
        "metric": asdict(pair.metric),
        "margin": pair.margin,
        "score": pair.score,
        "baseline_score": pair.baseline_score,
        "difference": difference,
        "speed": sooner,
        "levelled_off": pair.levelled_off,
        "rising": pair.rising,
        "gap_closed": pair.gap_closed,
        "diverged": pair.failed,
        "at_chance": pair.at_chance,
        "left_out": [{"seed": seed, "reason": reason} for seed, reason in pair.left_out.items()],
    }


def _caption(comparison: Comparison) -> str:
    pairs = comparison.pairs
    rounds = sorted({pair.rounds for pair in pairs})
    seeds = sorted({len(pair.seeds) for pair in pairs})
    units = dict.fromkeys(
        f"in {pair.metric.difference_unit}" if pair.metric.difference_unit else "in its own unit" for pair in pairs
    )
    directions = dict.fromkeys(pair.metric.direction for pair in pairs if not pair.metric.larger_is_better)
    own = dict.fromkeys(pair.metric.words for pair in pairs if pair.metric.name.endswith("own data"))
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


def _pair_cells(pair: Pair) -> tuple[Cell, Cell]:
    found, metric = pair.difference, pair.metric
    if found is None:
        return Cell("-"), Cell("-")
    spread = "" if found.interval is None else f" ({metric.range(found.interval)})"
    speed = factor(pair)
    if pair.speed and not speed:
        late = pair.speed.late
        speed = "-" if late < pair.speed.late_baseline else f"{len(pair.seeds) - late} of {len(pair.seeds)} arrive"
    return (
        Cell(f"{metric.change(found.mean, found.interval)}{spread}", found.mean),
        Cell(speed, pair.speed.factor if pair.speed else None),
    )
