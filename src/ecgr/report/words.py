"""What a comparison says, in sentences for a person; the statistics stand in a line of their own.

The primary metric's name, unit and direction come from the pair; a setting is named where the pair has one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from ecgr.analysis.pairs import LEVEL, Pair, Verdict
from ecgr.analysis.power import POWER, least_seeds
from ecgr.analysis.verdicts import Comparison

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def answer(comparison: Comparison) -> str:
    """The whole comparison in one or two sentences: what helped, what hurt, what is inconclusive.

    >>> answer(Comparison("fedavg", ()))
    'Nothing to compare: no method besides the baseline.'
    """
    if not comparison.pairs:
        return "Nothing to compare: no method besides the baseline."
    several = len({pair.setting for pair in comparison.pairs}) > 1
    parts = []
    for verdict in CLAIMS:
        words = verdict.capitalize() + (f" than {comparison.baseline}" if verdict in ("better", "worse") else "")
        found = [pair for pair in best_first(comparison.pairs) if pair.verdict == verdict]
        if found:
            parts.append(f"{words}: {', '.join(_short(pair, several) for pair in found)}.")
    return " ".join(parts)


def best_first(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs by how much better their mean is, setting by setting; those without one last."""
    pairs = list(pairs)
    order = list(dict.fromkeys(pair.setting for pair in pairs))

    def place(pair: Pair) -> tuple[int, bool, float]:
        mean = pair.primary.mean
        return order.index(pair.setting), mean is None, -pair.metric.gain(mean) if mean is not None else 0.0

    return sorted(pairs, key=place)


def sentence(pair: Pair) -> str:
    """One sentence to quote, for a person, with the interval of the difference.

    >>> from ecgr.analysis.pairs import Estimate
    >>> found = Estimate((0.01, 0.02), mean=0.0123, interval=(0.004, 0.0206), p_holm=0.004)
    >>> seeds = tuple(range(10))
    >>> sentence(Pair("", "fedavg+ecgr", "fedavg", seeds, {}, None, {"last5": found}, verdict="better"))
    'Better: accuracy of fedavg+ecgr is 1.2 points above fedavg (95 % CI 0.4 to 2.1).'
    """
    where = f"{pair.setting}: " if pair.setting else ""
    claim = CLAIMS[pair.verdict](pair) if pair.primary.mean is not None else _without_end(pair)
    return f"{where}{pair.verdict.capitalize()}: {claim}."


def details(pair: Pair) -> str:
    """The statistics behind the sentence, and what its reader should also know."""
    found, quantity = pair.primary, pair.metric
    parts = [f"{pair.description}, {quantity.direction}"]
    if found.baseline_mean is not None and found.method_mean is not None:
        levels = f"{quantity.level(found.method_mean)} against {quantity.level(found.baseline_mean)}"
        parts.append(f"{levels}, difference {quantity.change(found.mean)}")
    if found.interval is not None:
        parts.append(f"{100 * LEVEL:g} % CI {quantity.range(found.interval)}")
    parts.append(count(len(pair.seeds), "seed"))
    if found.p_holm is not None:
        parts.append(f"{_p(found.p_holm)} after Holm over {pair.family}")
    if found.p_equivalent is not None and pair.verdict == "equivalent":
        parts.append(f"equivalence {_p(found.p_equivalent)}")
    if pair.verdict == "inconclusive" and pair.seeds_needed is not None:
        parts.append(f"{pair.seeds_needed} seeds would give {100 * POWER:g} % power at this effect")
    return "; ".join([", ".join(parts), *([pair.note] if pair.note else [])]) + "."


def notes(comparison: Comparison) -> list[str]:
    """What should also be known, each remark once, with the pairs that it is about."""
    pairs, about = best_first(comparison.pairs), dict[str, list[str]]()
    several = len({pair.setting for pair in pairs}) > 1
    for pair in pairs:
        for remark in pair.remarks:
            name = f"{pair.setting} {pair.method}" if several and pair.setting else pair.method
            about.setdefault(remark, []).append(name)
    return [
        f"{'all' if 1 < len(names) == len(pairs) else ', '.join(names)}: {remark}" for remark, names in about.items()
    ]


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "seed"), count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def visible(value: Any) -> Any:
    """``value`` with the control characters of every text made visible, so that no name can bend what surrounds it.

    >>> visible({"name": "a\\u202eb"})
    {'name': 'a\\\\u202eb'}
    """
    if isinstance(value, str):
        return _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)
    if is_dataclass(value) and not isinstance(value, type):
        return visible(asdict(value))
    if isinstance(value, Mapping):
        return {visible(key): visible(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible(entry) for entry in value]
    return value


def _shown(pair: Pair) -> str:
    side = "above" if (pair.primary.mean or 0.0) > 0 else "below"
    size = pair.metric.amount(pair.primary.mean or 0.0)
    direction = "" if pair.metric.larger_is_better else f"; {pair.metric.direction}"
    return f"{_name(pair)} of {pair.method} is {size} {side} {pair.baseline} ({_interval(pair)}{direction})"


def _equivalent(pair: Pair) -> str:
    margin = pair.metric.amount(pair.margin or 0.0)
    return f"{_name(pair)} of {pair.method} and {pair.baseline} differs by less than {margin} ({_interval(pair)})"


def _inconclusive(pair: Pair) -> str:
    if pair.primary.identical:
        return f"{pair.method} and {pair.baseline} are identical in every seed, so there is nothing to compare"
    return f"{_name(pair)} of {pair.method} against {pair.baseline} is {_change(pair)} ({_interval(pair)})"


def _few(pair: Pair) -> str:
    seeds = count(len(pair.seeds), "seed")
    return (
        f"{_name(pair)} of {pair.method} against {pair.baseline} is {_change(pair)} in the mean of {seeds}, which"
        f" cannot decide; {least_seeds(pair.family)} or more can"
    )


def _untrained(pair: Pair) -> str:
    found, quantity = pair.primary, pair.metric
    ends = f"{quantity.level(found.method_mean)} and {quantity.level(found.baseline_mean)}"
    guess = f"a constant guess has {quantity.level(pair.chance)}"
    both = f"{pair.method} and {pair.baseline}"
    return f"{both} ended at {ends} ({_name(pair)}), and {guess}: more rounds or a larger lr first"


def _without_end(pair: Pair) -> str:
    return f"{pair.method} and {pair.baseline} cannot be compared: {pair.note}"


CLAIMS: Mapping[Verdict, Callable[[Pair], str]] = {
    "better": _shown,
    "worse": _shown,
    "equivalent": _equivalent,
    "inconclusive": _inconclusive,
    "too few seeds": _few,
    "not trained yet": _untrained,
    "diverged": _without_end,
}


def _name(pair: Pair) -> str:
    return pair.metric.name.replace("_", " ")


def _change(pair: Pair) -> str:
    return f"{pair.metric.change(pair.primary.mean)} {pair.metric.difference_unit}".rstrip()


def _interval(pair: Pair) -> str:
    return f"{100 * LEVEL:g} % CI {pair.metric.range(pair.primary.interval or (0.0, 0.0))}"


def _short(pair: Pair, several: bool) -> str:
    where = f" on {pair.setting}" if several and pair.setting else ""
    return f"{pair.method}{where}" + ("" if pair.primary.mean is None else f" ({_change(pair)})")


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"
