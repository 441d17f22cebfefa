"""A comparison as JSON, CSV, tables on screen, and one sentence to quote.

JSON and CSV keep accuracies as shares of one, as the records do; what people read is in percentage points.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ecgr.analysis.comparison import ALPHA, HEADLINE_PAIRS, LEVEL, MARGIN, POWER, Comparison, Estimate, Pair
from ecgr.analysis.metrics import METRICS, PRIMARY

CSV_COLUMNS = (
    *("setting", "algorithm", "regulator", "baseline", "metric", "unit", "optimistic", "seeds"),
    *("baseline_mean", "regulated_mean", "mean_difference", "interval_low", "interval_high"),
    *("p", "p_holm", "effect_size", "p_equivalent", "differences", "seeds_needed", "verdict", "note"),
)
STYLES: Mapping[str, str] = {"better": "green", "worse": "red", "equivalent": "cyan"}


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, with stable keys; every number is finite, null where there is none or it is infinite.

    The keys are described in ``docs/reference/statistics.md``.

    >>> to_json(Comparison(baseline="none", family=0, pairs=()))["primary"]
    'last5'
    """
    return {
        "baseline": comparison.baseline,
        "primary": PRIMARY,
        "level": LEVEL,
        "alpha": ALPHA,
        "power": POWER,
        "margin": MARGIN,
        "headline_seeds": HEADLINE_PAIRS,
        "family": comparison.family,
        "metrics": {
            name: {
                "description": metric.description,
                "unit": metric.unit,
                "lower_is_better": metric.lower_is_better,
                "optimistic": metric.optimistic,
            }
            for name, metric in METRICS.items()
        },
        "pairs": [_pair_json(pair) for pair in comparison.pairs],
    }


def to_csv(comparison: Comparison) -> str:
    """One line for each pair and metric; verdict, note and seeds needed stand with the primary metric only.

    >>> to_csv(Comparison(baseline="none", family=0, pairs=())).split(",")[:3]
    ['setting', 'algorithm', 'regulator']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(pair, name) for pair in comparison.pairs for name in METRICS)
    return text.getvalue()


def to_table(comparison: Comparison) -> Table:
    """The primary metric in percent, one row a pair, with its verdict; notes below.

    >>> to_table(Comparison(baseline="none", family=0, pairs=())).row_count
    0
    """
    title = f"{METRICS[PRIMARY].description}, %; difference and {100 * LEVEL:g} % interval in points"
    table = _started(title, ("seeds", comparison.baseline, "difference", "p Holm", "d_z"))
    table.add_column("verdict", min_width=13)
    for pair in comparison.pairs:
        verdict = Text(pair.verdict, STYLES.get(pair.verdict, ""))
        table.add_row(_label(comparison, pair, "\n"), *_numbers(pair), verdict)
    notes = (f"{_label(comparison, pair, ' ')}: {pair.note}" for pair in comparison.pairs if pair.note)
    table.caption = Text("\n".join(notes))
    table.caption_justify = "left"
    return table


def to_secondary_table(comparison: Comparison) -> Table:
    """Mean differences in the other metrics, which describe and get no verdict.

    >>> to_secondary_table(Comparison(baseline="none", family=0, pairs=())).row_count
    0
    """
    metrics = {name: metric for name, metric in METRICS.items() if name != PRIMARY}
    headings = [
        name.replace("_", " ") + ("\n(optimistic)" if metric.optimistic else "") for name, metric in metrics.items()
    ]
    title = f"other metrics: difference to {comparison.baseline}, in points or rounds; no verdict"
    table = _started(title, headings)
    for pair in comparison.pairs:
        amounts = (_amount(pair.estimates[name].mean, metric.unit) for name, metric in metrics.items())
        table.add_row(_label(comparison, pair, "\n"), *amounts)
    return table


def sentence(pair: Pair) -> str:
    """One sentence to quote, with its uncertainty, whether or not anything was shown.

    >>> estimate = Estimate(mean=0.0123, interval=(0.004, 0.0206), p_holm=0.004)
    >>> print(sentence(Pair("", "fedavg", "ecgr", "none", tuple(range(10)), {}, None, {PRIMARY: estimate},
    ...                     verdict="better")))
    fedavg: ecgr ended 1.23 points above none (95 % CI +0.40 to +2.06, 10 seeds, p = 0.004 after Holm).
    """
    who = f"{pair.algorithm} ({pair.setting})" if pair.setting else pair.algorithm
    return f"{who}: {_claim(pair)}" + (f": {pair.note}." if pair.note else ".")


def _claim(pair: Pair) -> str:
    found, both = pair.primary, f"{pair.regulator} and {pair.baseline}"
    if found.mean is None:
        return f"{both} cannot be compared"
    if found.interval is None:
        return f"no difference shown between {both} ({_amount(found.mean)} points, 1 seed)"
    low, high = (_amount(end) for end in found.interval)
    certainty = f"{100 * LEVEL:g} % CI {low} to {high}, {len(pair.seeds)} seeds"
    if pair.verdict == "equivalent":
        equivalence = f"{certainty}, equivalence {_p(found.p_equivalent)}"
        margin = f"±{100 * MARGIN:g} points"
        return f"{both} are equivalent within {margin} ({_amount(found.mean)} points, {equivalence})"
    certainty += f", {_p(found.p_holm)} after Holm"
    if pair.verdict == "no difference shown":
        if pair.seeds_needed is not None:
            certainty += f"; {pair.seeds_needed} seeds would give {100 * POWER:g} % power at this effect"
        return f"no difference shown between {both} ({_amount(found.mean)} points, {certainty})"
    side = "above" if found.mean > 0 else "below"
    return f"{pair.regulator} ended {100 * abs(found.mean):.2f} points {side} {pair.baseline} ({certainty})"


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "setting": pair.setting,
        "algorithm": pair.algorithm,
        "regulator": pair.regulator,
        "baseline": pair.baseline,
        "verdict": pair.verdict,
        "note": pair.note,
        "sentence": sentence(pair),
        "exploratory": pair.exploratory,
        "seeds": list(pair.seeds),
        "left_out": [{"seed": seed, "reason": reason} for seed, reason in pair.left_out.items()],
        "seeds_needed": pair.seeds_needed,
        "target": pair.target,
        "metrics": {name: _estimate_json(estimate) for name, estimate in pair.estimates.items()},
    }


def _estimate_json(estimate: Estimate) -> dict[str, Any]:
    return {
        "baseline_mean": estimate.baseline_mean,
        "regulated_mean": estimate.regulated_mean,
        "mean_difference": estimate.mean,
        "differences": list(estimate.differences),
        "interval": None if estimate.interval is None else list(estimate.interval),
        "p": estimate.p,
        "p_holm": estimate.p_holm,
        "effect_size": estimate.dz if estimate.dz is not None and math.isfinite(estimate.dz) else None,
        "p_equivalent": estimate.p_equivalent,
    }


def _csv_row(pair: Pair, name: str) -> dict[str, Any]:
    estimate = _estimate_json(pair.estimates[name])
    low, high = estimate.pop("interval") or (None, None)
    differences = zip(pair.seeds, estimate.pop("differences"), strict=True)
    row = {
        "setting": pair.setting,
        "algorithm": pair.algorithm,
        "regulator": pair.regulator,
        "baseline": pair.baseline,
        "metric": name,
        "unit": METRICS[name].unit,
        "optimistic": METRICS[name].optimistic,
        "seeds": len(pair.seeds),
        "interval_low": low,
        "interval_high": high,
        "differences": " ".join(f"{seed}:{'' if gain is None else repr(gain)}" for seed, gain in differences),
        **estimate,
    }
    if name == PRIMARY:
        row |= {"seeds_needed": pair.seeds_needed, "verdict": pair.verdict, "note": pair.note}
    return row


def _started(title: str, numbers: Iterable[str]) -> Table:
    table = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("algorithm, regulator", overflow="fold", min_width=14)
    for heading in numbers:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table


def _label(comparison: Comparison, pair: Pair, separator: str) -> Text:
    """Name the pair, and the setting where there are several; as plain text, whatever the names hold."""
    name = f"{pair.algorithm}, {pair.regulator}"
    several = len({pair.setting for pair in comparison.pairs}) > 1
    return Text(f"{pair.setting}{separator}{name}" if several and pair.setting else name)


def _numbers(pair: Pair) -> list[str]:
    found = pair.primary
    difference = _amount(found.mean)
    if found.interval is not None:
        difference += "\n{} to {}".format(*map(_amount, found.interval))
    return [
        str(len(pair.seeds)),
        "-" if found.baseline_mean is None else f"{100 * found.baseline_mean:.2f}",
        difference,
        "-" if found.p_holm is None else f"{found.p_holm:.2g}",
        "-" if found.dz is None else f"{found.dz:+z.2f}",
    ]


def _amount(value: float | None, unit: str = "share") -> str:
    if value is None:
        return "-"
    return f"{100 * value:+z.2f}" if unit == "share" else f"{value:+z.1f}"


def _p(p: float | None) -> str:
    return "p < 0.001" if p is not None and p < 0.001 else f"p = {p:.3g}"
