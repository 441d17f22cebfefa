"""What a comparison says, in sentences for a person; the statistics stand in a line of their own.

The primary metric's name, unit and direction come from the pair; a setting is named where the pair has one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ecgr.analysis.comparison import LEVEL, Comparison, Pair, Verdict
from ecgr.analysis.power import POWER, least_seeds


def answer(comparison: Comparison) -> str:
    """The whole comparison in one or two sentences: what helped, what hurt, what is open.

    >>> answer(Comparison(baseline="none", family=0, pairs=()))
    'Nothing to compare: no method besides the baseline.'
    """
    if not comparison.pairs:
        return "Nothing to compare: no method besides the baseline."
    several = len({pair.setting for pair in comparison.pairs}) > 1
    baselines = {pair.baseline_method for pair in comparison.pairs}
    against = f" than {baselines.pop()}" if len(baselines) == 1 else " than its baseline"
    parts = []
    for verdict in CLAIMS:
        words = verdict.capitalize() + (against if verdict in ("better", "worse") else "")
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
    """One sentence to quote, for a person, with the range that the effect likely lies in.

    >>> from ecgr.analysis.comparison import Estimate
    >>> found = Estimate((0.01, 0.02), mean=0.0123, interval=(0.004, 0.0206), p_holm=0.004)
    >>> print(sentence(Pair("", "fedavg", "ecgr", "none", tuple(range(10)), {}, None, {"last5": found},
    ...                     verdict="better", method="fedavg+ecgr", baseline_method="fedavg", cause="step length")))
    Better: fedavg+ecgr ended 1.23 points above fedavg (accuracy), likely between +0.40 and +2.06; by step length.
    """
    where = f"{pair.setting}: " if pair.setting else ""
    claim = CLAIMS[pair.verdict](pair) if pair.primary.mean is not None else _without_end(pair)
    return f"{where}{pair.verdict.capitalize()}: {claim}."


def details(pair: Pair) -> str:
    """The statistics behind the sentence, and what its reader should also know."""
    found, quantity = pair.primary, pair.metric
    parts = [f"{pair.description}, {quantity.direction}"]
    if found.baseline_mean is not None and found.regulated_mean is not None:
        levels = f"{quantity.level(found.regulated_mean)} against {quantity.level(found.baseline_mean)}"
        parts.append(f"{levels}, difference {quantity.change(found.mean)}")
    if found.interval is not None:
        low, high = map(quantity.change, found.interval)
        parts.append(f"{100 * LEVEL:g} % CI {low} to {high}")
    parts.append(f"{len(pair.seeds)} {'seed' if len(pair.seeds) == 1 else 'seeds'}")
    if found.p_holm is not None:
        parts.append(f"{_p(found.p_holm)} after Holm over {pair.family}")
    if found.p_equivalent is not None and pair.verdict == "equivalent":
        parts.append(f"equivalence {_p(found.p_equivalent)}")
    if pair.verdict == "not decided" and pair.seeds_needed is not None:
        parts.append(f"{pair.seeds_needed} seeds would give {100 * POWER:g} % power at this effect")
    return "; ".join([", ".join(parts), *_split(pair), *([pair.note] if pair.note else [])]) + "."


def _shown(pair: Pair) -> str:
    side = "above" if (pair.primary.mean or 0.0) > 0 else "below"
    size = pair.metric.amount(pair.primary.mean or 0.0)
    named = _name(pair) + ("" if pair.metric.larger_is_better else f", {pair.metric.direction}")
    cause = f"; {by_cause(pair)}" if pair.cause else ""
    return f"{pair.method} ended {size} {side} {pair.baseline_method} ({named}), {_likely(pair)}{cause}"


def _equivalent(pair: Pair) -> str:
    margin = pair.metric.amount(pair.margin or 0.0)
    return f"{_both(pair)} differ by less than {margin} ({_name(pair)}), {_likely(pair)}{_unit(pair)}"


def _open(pair: Pair) -> str:
    if pair.primary.identical:
        return f"{_both(pair)} are identical in every seed, so there is nothing to compare"
    return f"any effect of {pair.method} over {pair.baseline_method} is {_likely(pair)}{_unit(pair)} ({_name(pair)})"


def _few(pair: Pair) -> str:
    seeds = f"{len(pair.seeds)} {'seed' if len(pair.seeds) == 1 else 'seeds'}"
    shown = f"{pair.metric.change(pair.primary.mean)}{_unit(pair)} ({_name(pair)})"
    return (
        f"{pair.method} over {pair.baseline_method} is {shown} in the mean of {seeds}, which cannot decide;"
        f" {least_seeds(pair.family)} or more can"
    )


def _untrained(pair: Pair) -> str:
    found, quantity = pair.primary, pair.metric
    ends = f"{quantity.level(found.regulated_mean)} and {quantity.level(found.baseline_mean)}"
    guess = f"a constant guess has {quantity.level(pair.chance)}"
    return f"{_both(pair)} ended at {ends} ({_name(pair)}), and {guess}: more rounds or a larger lr first"


def _without_end(pair: Pair) -> str:
    return f"{_both(pair)} cannot be compared: {pair.note}"


CLAIMS: Mapping[Verdict, Callable[[Pair], str]] = {
    "better": _shown,
    "worse": _shown,
    "equivalent": _equivalent,
    "not decided": _open,
    "too few seeds": _few,
    "not trained yet": _untrained,
    "diverged": _without_end,
}


def by_cause(pair: Pair) -> str:
    """The cause of a verdict in words; empty where there is none."""
    told = " and ".join(f"by {cause}" for cause in pair.causes)
    return f"both {told}" if len(pair.causes) > 1 else told


def _both(pair: Pair) -> str:
    return f"{pair.method} and {pair.baseline_method}"


def _name(pair: Pair) -> str:
    return pair.metric.name.replace("_", " ")


def _unit(pair: Pair) -> str:
    return f" {pair.metric.difference_unit}".rstrip()


def _likely(pair: Pair) -> str:
    low, high = map(pair.metric.change, pair.primary.interval or (None, None))
    return f"likely between {low} and {high}"


def _short(pair: Pair, several: bool) -> str:
    where = f" on {pair.setting}" if several and pair.setting else ""
    if pair.primary.mean is None:
        return pair.method + where
    cause = f", {by_cause(pair)}" if pair.cause else ""
    return f"{pair.method}{where} ({pair.metric.change(pair.primary.mean)}{_unit(pair)}{cause})"


def _split(pair: Pair) -> Sequence[str]:
    """How far the method went, and what that brought."""
    split, quantity = pair.split, pair.metric
    if split is None or split.ratio is None:
        return []
    path = f"its path is {split.ratio:.2f} times the baseline's"
    reason = [split.reason] if split.reason else []
    if split.direction is None or split.length is None:
        return [path, *reason]
    parts = []
    for name, part in (("direction", split.direction), ("step length", split.length)):
        mean, low, high = map(quantity.change, (part.mean, *part.interval))
        parts.append(f"{name} {mean} ({low} to {high})")
    return [f"{path}: {', '.join(parts)}", *reason]


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3g}"
