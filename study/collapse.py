"""The collapse of FedNova with ECGR: where the paper reports it, where it does not, and where it was found."""

from collections.abc import Iterable
from typing import Any

from study.data import Study
from study.verdicts import Claim, Verdict

USUAL = {"optimizer.lr": 0.001, "partition.alpha": 0.01, "regulator.beta": 0.2}
REPORTED = (("optimizer.lr", 0.0001), ("partition.alpha", 0.1), ("regulator.beta", 0.0))
"""What is changed where the paper reports a collapse."""


def has_collapsed(entry: Any) -> bool:
    """At chance in the last five rounds, with negative variances there."""
    classes = {"cifar10": 10, "cifar100": 100}[entry["config"]["data.name"]]
    negative = any(value is None or value < 0 for value in entry["smallest_variance"][-5:])
    return negative and min(entry["accuracy"][-5:]) <= 1.05 / classes


def is_reported(entry: Any) -> bool:
    """Whether the paper reports a collapse in this setting."""
    return any(entry["config"][key] == value for key, value in REPORTED)


def is_usual(entry: Any) -> bool:
    """Whether this is the paper's usual setting."""
    return all(entry["config"][key] == value for key, value in USUAL.items())


def by_report(study: Study, buffers: str) -> tuple[list[Any], list[Any], list[Any]]:
    """The runs with that treatment of the buffers: reported to collapse, reported not to, and the usual setting."""
    own = [e for e in study.collapse["buffers"] if e["config"]["run.buffers"] == buffers]
    return (
        [e for e in own if is_reported(e)],
        [e for e in own if not (is_reported(e) or is_usual(e))],
        [*filter(is_usual, own)],
    )


def count_collapses(entries: list[Any]) -> str:
    """How many of them collapsed."""
    return f"{sum(map(has_collapsed, entries))} of {len(entries)}"


def collapse_claims(study: Study) -> Iterable[Claim]:
    """Where it is, what the reason is not, and the usual setting."""
    where, elsewhere, as_usual = by_report(study, "as_weights")
    yield Claim(
        "FedNova with ECGR collapses at lr 0.0001, at alpha 0.1 and at beta 0, and not at lr 0.01, alpha 1 or beta 0.5"
        " (figures 3, 7, 10)",
        f"BatchNorm's buffers treated as weights: collapse in {count_collapses(where)} settings where it is reported"
        f" (one of them by inference), {count_collapses(elsewhere)} where it is not; one seed",
        verdict_on_collapse(where, elsewhere),
        "collapse",
    )
    if as_usual:
        lowest = min(e["summary"]["smallest_factor"] for e in as_usual)
        yield Claim(
            "CIFAR-10: in the usual setting FedNova with ECGR does not collapse (figure 2)",
            f"buffers treated as weights: collapse in {count_collapses(as_usual)}, smallest factor {lowest:.2f};"
            " one seed",
            "contradicted" if any(map(has_collapsed, as_usual)) else "shown",
            "collapse",
        )
    averaged = [e for group in by_report(study, "average") for e in group]
    yield Claim(
        "The reason is that the optimisation overshoots the optimum",
        f"with the buffers averaged, and the same weights to the bit, collapse in {count_collapses(averaged)}",
        verdict_on_reason(averaged),
        "collapse",
    )


def verdict_on_collapse(where: list[Any], elsewhere: list[Any]) -> Verdict:
    """Shown if all collapse where it is reported and none elsewhere; contradicted if none does."""
    if not where or not elsewhere:
        return "not measured"
    if all(map(has_collapsed, where)) and not any(map(has_collapsed, elsewhere)):
        return "shown"
    return "not shown" if any(map(has_collapsed, where)) else "contradicted"


def verdict_on_reason(averaged: list[Any]) -> Verdict:
    """Weights that overshoot would do so whatever becomes of the buffers."""
    if not averaged:
        return "not measured"
    return "not shown" if any(map(has_collapsed, averaged)) else "contradicted"
