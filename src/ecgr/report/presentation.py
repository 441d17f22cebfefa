"""A comparison for programs and on a terminal: JSON, CSV, tables, and a picture made of characters.

JSON and CSV keep shares as shares of one, as the records do; what people read is in percent and percentage points.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ecgr.analysis.comparison import HEADLINE_PAIRS, LEVEL, Comparison, Estimate, Pair
from ecgr.analysis.length import LengthCurve
from ecgr.analysis.metrics import METRICS, PRIMARY
from ecgr.analysis.pairs import Part, Split
from ecgr.analysis.power import ALPHA, POWER
from ecgr.analysis.quantities import ACCURACY, MARGIN, Quantity
from ecgr.report.picture import STYLES
from ecgr.report.sentences import answer, best_first, details, sentence

CSV_COLUMNS = (
    *("setting", "algorithm", "regulator", "baseline", "metric", "unit", "optimistic", "seeds"),
    *("baseline_mean", "regulated_mean", "mean_difference", "interval_low", "interval_high"),
    *("p", "p_holm", "effect_size", "p_equivalent", "differences", "seeds_needed", "verdict", "note"),
    *("cause", "method", "baseline_method", "quantity", "larger_is_better", "path_ratio"),
)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Everything, with stable keys; every number is finite, null where there is none or it is infinite.

    The keys are described in ``docs/reference/statistics.md``.

    >>> to_json(Comparison(baseline="none", family=0, pairs=()))["primary"]
    'last5'
    """
    quantity = quantity_of(comparison)
    rounds = max((pair.rounds for pair in comparison.pairs), default=5)
    power = comparison.power
    return {
        "baseline": comparison.baseline,
        "by": comparison.by,
        "answer": answer(comparison),
        "primary": PRIMARY,
        "metric": _quantity_json(quantity),
        "level": LEVEL,
        "alpha": ALPHA,
        "power": POWER,
        "margin": MARGIN,
        "headline_seeds": HEADLINE_PAIRS,
        "family": comparison.family,
        "design": {
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
        "length_curves": [_curve_json(curve) for curve in comparison.curves],
    }


def to_csv(comparison: Comparison) -> str:
    """One line for each pair and metric; verdict, cause, note and seeds needed stand with the primary metric only.

    >>> to_csv(Comparison(baseline="none", family=0, pairs=())).split(",")[:3]
    ['setting', 'algorithm', 'regulator']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_csv_row(pair, name) for pair in comparison.pairs for name in METRICS)
    return text.getvalue()


def to_table(comparison: Comparison) -> Table:
    """The primary metric, one row a pair, best first, with its verdict.

    >>> to_table(Comparison(baseline="none", family=0, pairs=())).row_count
    0
    """
    quantity = quantity_of(comparison)
    rounds = max((pair.rounds for pair in comparison.pairs), default=5)
    unit = ", %" if quantity.is_share else f", {quantity.unit}" if quantity.unit else ""
    points = " in points" if quantity.is_share else ""
    title = (
        f"{METRICS[PRIMARY].describe(quantity, rounds)}{unit} ({quantity.direction});"
        f" difference and {100 * LEVEL:g} % interval{points}"
    )
    baselines = {pair.baseline_method for pair in comparison.pairs}
    heading = baselines.pop() if len(baselines) == 1 else "baseline"
    table = _start_table(title, ("seeds", heading, "difference", "p Holm", "d_z"))
    table.add_column("verdict", min_width=12)  # "by direction"; longer causes are wrapped where it is narrow
    for pair in best_first(comparison.pairs):
        causes = "".join(f"\nby {cause}" for cause in pair.causes)
        verdict = Text(pair.verdict + causes, STYLES.get(pair.verdict, ""))
        table.add_row(_label(comparison, pair, "\n"), *_numbers(pair), verdict)
    return table


def to_notes(comparison: Comparison) -> Text:
    """What should also be known, one line a remark; not the table's caption, which is cut where the table is wide."""
    return Text("\n".join(_notes(comparison, best_first(comparison.pairs))))


def quantity_of(comparison: Comparison) -> Quantity:
    """The metric that the pairs are of; that of the first, where settings differ."""
    return comparison.pairs[0].metric if comparison.pairs else ACCURACY


def _pair_json(pair: Pair) -> dict[str, Any]:
    return {
        "setting": pair.setting,
        "algorithm": pair.algorithm,
        "regulator": pair.regulator,
        "baseline": pair.baseline,
        "method": pair.method,
        "baseline_method": pair.baseline_method,
        "metric": _quantity_json(pair.metric),
        "verdict": pair.verdict,
        "cause": pair.cause,
        "causes": list(pair.causes),
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
        "length": None if pair.split is None else _split_json(pair.split),
        "metrics": {name: _estimate_json(estimate) for name, estimate in pair.estimates.items()},
    }


def _quantity_json(quantity: Quantity) -> dict[str, Any]:
    return {"name": quantity.name, "unit": quantity.unit, "larger_is_better": quantity.larger_is_better}


def _estimate_json(estimate: Estimate) -> dict[str, Any]:
    return {
        "baseline_mean": estimate.baseline_mean,
        "regulated_mean": estimate.regulated_mean,
        "mean_difference": estimate.mean,
        "differences": list(estimate.differences),
        "interval": None if estimate.interval is None else list(estimate.interval),
        "p": estimate.p,
        "p_holm": estimate.p_holm,
        "p_least": estimate.p_least,
        "effect_size": estimate.dz if estimate.dz is not None and math.isfinite(estimate.dz) else None,
        "p_equivalent": estimate.p_equivalent,
    }


def _split_json(split: Split) -> dict[str, Any]:
    def part(own: Part | None) -> dict[str, Any] | None:
        if own is None:
            return None
        return {"mean": own.mean, "interval": list(own.interval), "differences": list(own.differences)}

    return {
        "path": split.path,
        "baseline_path": split.baseline_path,
        "ratio": split.ratio,
        "by_direction": part(split.direction),
        "by_length": part(split.length),
        "reason": split.reason,
    }


def _curve_json(curve: LengthCurve) -> dict[str, Any]:
    return {
        "setting": curve.setting,
        "algorithm": curve.algorithm,
        "baseline_method": curve.baseline_method,
        "factors": list(curve.factors),
        "seeds": [{"seed": seed, "points": [list(point) for point in own]} for seed, own in curve.knots.items()],
    }


def _csv_row(pair: Pair, name: str) -> dict[str, Any]:
    estimate = _estimate_json(pair.estimates[name])
    low, high = estimate.pop("interval") or (None, None)
    differences = zip(pair.seeds, estimate.pop("differences"), strict=True)
    del estimate["p_least"]
    row = {
        "setting": pair.setting,
        "algorithm": pair.algorithm,
        "regulator": pair.regulator,
        "baseline": pair.baseline,
        "metric": name,
        "unit": pair.metric.unit if METRICS[name].unit == "metric" else METRICS[name].unit,
        "optimistic": METRICS[name].optimistic,
        "seeds": len(pair.seeds),
        "interval_low": low,
        "interval_high": high,
        "differences": " ".join(f"{seed}:{'' if gain is None else repr(gain)}" for seed, gain in differences),
        "method": pair.method,
        "baseline_method": pair.baseline_method,
        "quantity": pair.metric.name,
        "larger_is_better": pair.metric.larger_is_better,
        **estimate,
    }
    if name == PRIMARY:
        row |= {"seeds_needed": pair.seeds_needed, "verdict": pair.verdict, "note": pair.note, "cause": pair.cause}
        row |= {"path_ratio": pair.split.ratio if pair.split else None}
    return row


def _start_table(title: str, numbers: Iterable[str]) -> Table:
    table = Table(title=Text(title, "bold"), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", min_width=16)  # as long as the longest name of a method
    for heading in numbers:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    return table


def _label(comparison: Comparison, pair: Pair, separator: str) -> Text:
    """Name the pair, and the setting where there are several; as plain text, whatever the names hold."""
    several = len({pair.setting for pair in comparison.pairs}) > 1
    return Text(f"{pair.setting}{separator}{pair.method}" if several and pair.setting else pair.method)


def _notes(comparison: Comparison, pairs: Sequence[Pair]) -> Iterable[str]:
    """What should also be known, each once, with the pairs that it is about."""
    about: dict[str, list[str]] = {}
    for pair in pairs:
        for remark in pair.remarks:
            about.setdefault(remark, []).append(str(_label(comparison, pair, " ")))
    for remark, names in about.items():
        yield f"{'all' if 1 < len(names) == len(pairs) else ', '.join(names)}: {remark}"


def _numbers(pair: Pair) -> Sequence[str]:
    found, quantity = pair.primary, pair.metric
    difference = quantity.change(found.mean)
    if found.interval is not None:
        difference += "\n{} to {}".format(*map(quantity.change, found.interval))
    return (
        str(len(pair.seeds)),
        quantity.number(found.baseline_mean),
        difference,
        "-" if found.p_holm is None else f"{found.p_holm:.2g}",
        "-" if found.dz is None else f"{found.dz:+z.2f}",
    )
