"""The results table for a paper, as LaTeX and CSV: how each arm ended, and its difference to the baseline."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.arms import Group
from ecgr.analysis.comparison import Comparison
from ecgr.analysis.metrics import METRICS

COLUMNS = (
    *("setting", "algorithm", "regulator", "seeds", "last5", "last", "best"),
    *("difference", "interval_low", "interval_high", "p_holm", "verdict", "cause", "method", "metric", "unit"),
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

Row = Mapping[str, Any]


def table_rows(groups: Sequence[Group], comparison: Comparison) -> list[Row]:
    """One row for each arm with runs that ended: means over seeds as shares, and the pair's primary difference.

    There is no mean where one of them diverged.
    """
    pairs = {(pair.setting, pair.method): pair for pair in comparison.pairs}
    rows: list[Row] = []
    for group in groups:
        for arm in group.arms:
            runs = [run.summary for run in arm.runs if run.state in ("finished", "diverged") and run.summary.rounds]
            if not runs:
                continue
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            row |= {
                "setting": arm.setting,
                "algorithm": arm.algorithm,
                "regulator": arm.regulator,
                "method": arm.method,
                "metric": runs[0].metric.name,
                "unit": runs[0].metric.unit,
                "seeds": len(runs),
                **{name: _mean(METRICS[name].measure(run, None) for run in runs) for name in ("last5", "last", "best")},
            }
            if row["last5"] is None:
                row["best"] = None
            pair = pairs.get((arm.setting, arm.method))
            if pair is not None:
                low, high = pair.primary.interval or (None, None)
                row |= {"difference": pair.primary.mean, "interval_low": low, "interval_high": high}
                row |= {"p_holm": pair.primary.p_holm, "verdict": pair.verdict, "cause": pair.cause}
            rows.append(row)
    return rows


def to_csv(rows: Sequence[Row]) -> str:
    """Shares of one, as in the records.

    >>> to_csv([]).split(",")[:2]
    ['setting', 'algorithm']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_latex(rows: Sequence[Row]) -> str:
    """A ``tabular`` with booktabs rules; shares in percent and percentage points."""
    several = len({row["setting"] for row in rows}) > 1
    names = ["setting", "method"] if several else ["method"]
    headings = [*names, "seeds", "last 5", "last", "best", "difference", r"95\,\% CI", "$p$ (Holm)", "verdict"]
    metrics = ", ".join(dict.fromkeys(latex(str(row["metric"])) for row in rows))
    lines = [
        f"% last 5: mean {metrics} of the last five rounds, which decides; best: chosen on test data, hence flattering",
        f"\\begin{{tabular}}{{{'l' * len(names)}{'r' * (len(headings) - len(names) - 1)}l}}",
        r"\toprule",
        " & ".join(headings) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        interval = None if row["interval_low"] is None else (row["interval_low"], row["interval_high"])
        cells = [
            *(latex(str(row[name])) for name in names),
            str(row["seeds"]),
            *(_level(row, row[name]) for name in ("last5", "last", "best")),
            _signed(row, row["difference"]),
            "--" if interval is None else " to ".join(_signed(row, end) for end in interval),
            "--" if row["p_holm"] is None else f"{row['p_holm']:.3g}",
            row["verdict"] or "--",
        ]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex(text: str) -> str:
    r"""A name as LaTeX text.

    >>> print(latex("a_b & 50%"))
    a\_b \& 50\%
    """
    one_line = " ".join(text.split())
    return "".join(_SPECIAL.get(character, character) for character in one_line if character.isprintable())


def _mean(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return fmean(value for value in known if value is not None) if None not in known else None


def _level(row: Row, value: float | None) -> str:
    return "--" if value is None else f"{100 * value:.2f}" if row["unit"] == "share" else f"{value:.4g}"


def _signed(row: Row, value: float | None) -> str:
    if value is None:
        return "--"
    return f"${100 * value:+z.2f}$" if row["unit"] == "share" else f"${value:+z.3g}$"
