"""What a comparison says, in sentences for a person: advice first, then what the references say, then cautions.

Pure functions of the findings. The primary metric's name, unit and direction come from the pair; a setting is named
where there are several.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from itertools import groupby
from typing import Any

from ecgr.analysis.comparison import REFERENCES, Comparison
from ecgr.analysis.curves import LEVEL, MISSED, Estimate
from ecgr.analysis.findings import Pair
from ecgr.analysis.power import least_seeds
from ecgr.analysis.quantities import count
from ecgr.analysis.summaries import own_data

SEEDS = 10
"""With fewer, only large differences are found."""
MOST_SEEDS = 60
"""More than this is never advised: a difference that needs more is small beside the spread."""
SHORT = 15
"""Rounds up to which a decaying schedule, tuned to end there, beat a constant rate with an average (decision 10)."""
MOMENTUM = "fedavgm"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def advice(comparison: Comparison) -> str:
    """What to do, and why, in one sentence a setting.

    >>> advice(Comparison("fedavg", ()))
    'Nothing to compare: no method besides the baseline.'
    """
    if not comparison.pairs:
        return "Nothing to compare: no method besides the baseline."
    return " ".join(
        f"{_where(setting, comparison)}{_advice(pairs, comparison)}"
        for setting, pairs in by_setting(comparison).items()
    )


def winner(pairs: Iterable[Pair]) -> Pair | None:
    """The method to use: the best of those that end higher, else the fastest of those that are only sooner there.

    Of those that the best is not shown to beat by more than the margin, it is the one that sends least.
    """
    pairs = best_first(pairs)
    higher = _higher(pairs)
    if higher and higher[0].sent:
        alike = [pair for pair in higher if pair.sent and not _beats(higher[0], pair)]
        higher.insert(0, min(alike, key=lambda pair: pair.sent or 0.0))
    level = [pair for pair in pairs if pair.verdict in ("equal", "inconclusive") or pair.small]
    sooner = [pair for pair in level if pair.sooner == "sooner"]
    fastest = sorted(sooner, key=lambda pair: -((pair.speed and pair.speed.factor) or 0.0))
    return next(iter([*higher, *fastest]), None)


def _higher(pairs: Iterable[Pair]) -> list[Pair]:
    """The methods that end higher by more than too little to matter."""
    return [pair for pair in pairs if pair.verdict in ("better", "ahead") and not pair.small]


def _beside(pair: Pair, other: Pair) -> tuple[float, tuple[float, float]] | None:
    """The difference of the ends of two methods with its interval; None below two seeds that both have."""
    plain = other.by_seed
    gains = [gain - plain[seed] for seed, gain in pair.by_seed.items() if seed in plain]
    found = Estimate.of(gains, pair.overlap) if len(gains) > 1 else None
    return None if found is None or found.interval is None else (found.mean, found.interval)


def _beats(pair: Pair, other: Pair) -> bool:
    """Whether the method is shown to end better than the other, by more than the margin."""
    found = _beside(pair, other)
    return found is not None and min(map(pair.metric.gain, found[1])) > pair.margin


def sentence(pair: Pair) -> str:
    """One method in one sentence.

    >>> from ecgr.analysis.curves import Estimate
    >>> found = Estimate((0.01, 0.02), mean=0.0123, interval=(0.004, 0.0206), p_holm=0.004)
    >>> sentence(Pair("fedavg+ecgr", "fedavg", (0, 1), "ahead", found, rounds=60, rising=("fedavg",)))
    'Ahead: fedavg+ecgr is 1.2 points ahead of fedavg after 60 rounds (0.4 to 2.1); fedavg is still rising.'
    """
    where = f"{pair.setting}: " if pair.setting else ""
    return f"{where}{pair.verdict.capitalize()}: {_claim(pair, pair.method)}."


def details(pair: Pair, family: int) -> str:
    """The statistics behind the sentence."""
    found, metric = pair.difference, pair.metric
    if found is None:
        return ""
    parts = [
        f"{pair.metric.words} after {count(pair.rounds, 'round')}: {metric.level(pair.score)} against"
        f" {metric.level(pair.baseline_score)}, {metric.direction}, {count(len(pair.seeds), 'seed')}"
    ]
    if found.interval is not None and found.p_holm is not None:
        interval = f"{100 * LEVEL:g} % CI {metric.range(found.interval)}"
        parts.append(f"difference {change(pair)}, {interval}, {_p(found.p_holm)} after Holm over {family} tests")
    speed = pair.speed
    if speed is not None:
        method, baseline = (f"{number:.0f}" for number in speed.rounds)
        parts.append(
            f"{metric.level(speed.target)} is reached in round {method}, by {pair.baseline} in round {baseline}"
            + (f" ({_p(speed.log.p_holm)})" if speed.log is not None and speed.log.p_holm is not None else "")
            + _late(pair)
        )
    if pair.levelled_off:
        parts.append("both have levelled off")
    parts.append(f"no difference is one below {metric.amount(pair.margin)}")
    return "; ".join(parts) + "."


def worth(comparison: Comparison, everything: bool = True) -> list[str]:
    """What else the runs say, a line each: the references, how clients fare, server momentum, privacy, another head."""
    lines = [
        f"{_where(setting, comparison)}{line}"
        for told in (_about_references, _about_clients, _about_momentum, _about_privacy)
        for setting, pairs in by_setting(comparison).items()
        for line in told(comparison, setting, pairs)
    ]
    return [*lines, *head_lines(comparison, everything)]


def _about_references(comparison: Comparison, setting: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """What federating is worth, and how much of what is left to pooled data a method closes."""
    beside = {ref.name: ref for ref in comparison.references if ref.setting == setting}
    score = next((pair.baseline_score for pair in pairs if pair.baseline_score is not None), None)
    if not beside or score is None:
        return
    scores = {**{name: ref.score for name, ref in beside.items()}, comparison.baseline: score}
    order = dict.fromkeys(("alone", "server alone", comparison.baseline, "pooled"))
    told = ", ".join(f"{name} {pairs[0].metric.level(scores[name])}" for name in order if name in scores)
    best, closed = winner(pairs), ""
    if best is not None and best.gap_closed is not None and best.gap_closed > 0:
        closed = f" {best.method} closes {100 * best.gap_closed:.0f} % of what is left."
        if best.gap_closed > 1:  # as models of the clients' own may
            closed = f" {best.method} is beyond pooled."
    yield f"{_WORTH[beside['alone'].side] if 'alone' in beside else 'For scale'}: {told}.{closed}"


def _about_clients(comparison: Comparison, setting: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """How the clients of each method fare, where each is scored on its own samples."""
    metric = pairs[0].metric
    below = "below" if metric.larger_is_better else "above"
    for own in own_data(run for run in comparison.summaries if run.setting == setting):
        fare = f"worst client {metric.level(own.worst)}, a tenth {below} {metric.level(own.worst_tenth)}"
        if own.compared:
            fare += f"; {own.better} of {own.compared} clients better off than alone, {own.worse} worse off"
        yield f"{own.method}: {fare}."


def _about_momentum(comparison: Comparison, setting: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """Whether a winner does more than server momentum, or the best than a winner that sends less."""
    best, momentum = winner(pairs), next((pair for pair in pairs if pair.method.startswith(MOMENTUM)), None)
    if best is None:
        return
    if momentum is not None and momentum is not best and (found := _beside(best, momentum)):
        low, high = sorted(map(best.metric.gain, found[1]))
        word = "More than" if low > 0 else "Less than" if high < 0 else "Not shown to do more than"
        size = best.metric.signed(*found)
        yield f"{word} server momentum in the end: {best.method} is at {size} against {momentum.method}."
    higher = _higher(pairs)
    if best in higher and best is not higher[0] and (found := _beside(higher[0], best)):
        more = (higher[0].sent or 0.0) / (best.sent or 1.0)
        size = best.metric.signed(*found)
        yield f"{higher[0].method} ends {size} beside it, and sends {_times(more)} times as much."


def _about_privacy(comparison: Comparison, setting: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """What each method with differential privacy promises, and what it costs beside a baseline without."""
    spent = {run.method: run.privacy for run in comparison.summaries if run.setting == setting and run.privacy}
    prices = {pair.method: _price(pair) for pair in pairs if comparison.baseline not in spent}
    for method, privacy in spent.items():
        yield f"{method}: {promised(privacy)}{prices.get(method, '')}."


def promised(privacy: Mapping[str, float | None]) -> str:
    """Epsilon of a run, as its record has it.

    >>> promised({"epsilon": 4.21, "delta": 1e-5})
    'epsilon 4.21 at delta 1e-05'
    """
    epsilon = privacy.get("epsilon")
    return "no epsilon without noise" if epsilon is None else f"epsilon {epsilon:.3g} at delta {privacy['delta']:g}"


def _price(pair: Pair) -> str:
    """By how much a method ends worse than its baseline."""
    found, metric = pair.difference, pair.metric
    if found is None:
        return ""
    low, high = sorted(-metric.gain(end) for end in found.interval or (found.mean, found.mean))
    return f": costs {metric.signed(-metric.gain(found.mean), (low, high)).removeprefix('+')} here"


def head_lines(comparison: Comparison, everything: bool = True) -> list[str]:
    """What an LDA head on the baseline's features gains; without ``everything`` only if it is more than the margin."""
    head = comparison.head
    if head is None or head.difference.interval is None or (head.side <= 0 and not everything):
        return []
    gain = head.metric.signed(head.difference.mean, head.difference.interval)
    cause = ": the classifier is the problem, not the features" if head.side > 0 else ""
    return [f"An LDA head on the same features as {comparison.baseline} gives {gain}{cause}."]


_WORTH = {
    -1: "Federating is worth it",
    0: "Whether federating is worth it is inconclusive",
    1: "Federating is not worth it",
}


def cautions(comparison: Comparison, arguments: Sequence[str] = ()) -> list[str]:
    """What should also be known, a line each, with what resolves it: a command, where its ``arguments`` are known."""
    pairs = best_first(comparison.pairs)
    return [*_about_training(comparison, pairs, arguments), *_about_seeds(comparison, pairs, arguments)]


def _about_training(comparison: Comparison, pairs: Sequence[Pair], arguments: Sequence[str]) -> Iterator[str]:
    rates = comparison.rates()
    if lost := [pair for pair in pairs if pair.verdict == "diverged"]:
        rate = min((rates[pair.method] for pair in lost if pair.method in rates), default=None)
        smaller = f"optimizer.lr={rate / 10:.2g}" if rate else "a smaller optimizer.lr"
        yield f"{_names(lost)} diverged: {_command(arguments, '--set', smaller)}"
    if guess := list(dict.fromkeys(name for pair in pairs for name in pair.at_chance)):
        yield f"{', '.join(guess)}: no better than a constant guess; more rounds or a larger optimizer.lr"
    if same := [pair for pair in pairs if pair.identical]:
        yield f"{_names(same)}: identical to {comparison.baseline} in every seed; its parameters have no effect here"
    if not comparison.tuned and pairs:
        again = shlex.join(["ecgr", *(argument for argument in arguments if argument != "--no-tune")])
        how = again if arguments else "compare without --no-tune"
        yield f"Not tuned; a rate can suit one method and not another: {how}"
    if private := [run.privacy for run in comparison.summaries if run.privacy and run.privacy.get("epsilon")]:
        yield "Epsilon protects a whole client, not a sample; it covers one run, not its tuning or the other seeds"
        if any(privacy.get("sampling") == 1 for privacy in private):
            yield "Every client takes part in every round; a smaller federation.participation makes epsilon smaller"
    unsure = [name for name, own in comparison.tuning.items() if 2 * own["agreeing"] < len(own["without"])]
    if unsure := [name for name in unsure if name not in REFERENCES]:
        yield f"{', '.join(unsure)}: other tuning seeds would have chosen other values; --details has them"
    unlevel = [pair for pair in pairs if pair.difference is not None and not pair.levelled_off]
    if unlevel and all(pair.constant_rate for pair in unlevel) and len(unlevel[0].seeds) > 1:
        most = 4 * max(pair.rounds for pair in unlevel)
        yield f"Not levelled off, so ranks can change: {_command(arguments, '--until-level', str(most))}"
        if most <= 4 * SHORT:
            yield "So few rounds are better served by a schedule that ends there: --set schedule.name=cosine"
    elif unlevel and not unlevel[0].constant_rate:
        yield "The learning rate decays, so this holds for this schedule: --set schedule.name=constant says more"


def _about_seeds(comparison: Comparison, pairs: Sequence[Pair], arguments: Sequence[str]) -> Iterator[str]:
    few = [pair for pair in pairs if pair.verdict == "too few seeds" or 0 < len(pair.seeds) < SEEDS]
    undecided = [pair for pair in pairs if pair.verdict == "inconclusive" and pair.difference and not pair.at_chance]
    if few:
        fewest = min(len(pair.seeds) for pair in few)
        enough = max(SEEDS, least_seeds(_tests(comparison)))
        yield f"Only {count(fewest, 'seed')}: {_command(arguments, '--seeds', str(enough))}"
    elif undecided:
        needed = {pair.method: comparison.seeds_needed(pair) or 0 for pair in undecided}
        within = [method for method, seeds in needed.items() if len(undecided[0].seeds) < seeds <= MOST_SEEDS]
        if within:
            method = min(within, key=lambda name: needed[name])
            how = _command(arguments, "--seeds", str(needed[method]))
            yield f"{needed[method]} seeds would likely decide {method}: {how}"
        elif winner(pairs) is None:
            yield f"{_names(undecided)}: small beside the spread between seeds; more seeds would hardly decide"
    for pair in pairs:
        late = pair.speed.late_baseline if pair.speed and not pair.speed.log else 0
        if late > MISSED * len(pair.seeds):
            reached = f"{len(pair.seeds) - late} of {len(pair.seeds)}"
            why = f"seeds differ so much that {comparison.baseline} gets to its own mean in {reached} only"
            yield f"No factors of speed: {why}"
            break
    for reason in dict.fromkeys(reason for pair in pairs for reason in pair.left_out.values()):
        absent = {seed for pair in pairs for seed, why in pair.left_out.items() if why == reason}
        yield f"{listed(sorted(absent))} left out: {reason}"


def best_first(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs by how much better their mean is, setting by setting; those without one last."""
    pairs = list(pairs)
    order = list(dict.fromkeys(pair.setting for pair in pairs))

    def place(pair: Pair) -> tuple[int, float]:
        gain = -math.inf if pair.difference is None else pair.metric.gain(pair.difference.mean)
        return order.index(pair.setting), -gain

    return sorted(pairs, key=place)


def by_setting(comparison: Comparison) -> dict[str, list[Pair]]:
    """The pairs of each setting, best first."""
    return {name: list(own) for name, own in groupby(best_first(comparison.pairs), key=lambda pair: pair.setting)}


def change(pair: Pair) -> str:
    """The signed difference of the ends, with its unit."""
    found = pair.difference
    size = pair.metric.change(None) if found is None else pair.metric.change(found.mean, found.interval)
    return f"{size} {pair.metric.difference_unit}".rstrip()


def factor(pair: Pair) -> str:
    """How much sooner, with its interval; empty where there is no factor.

    >>> factor(Pair("a", "b", (), "equal"))
    ''
    """
    speed = pair.speed
    if speed is None or speed.factor is None:
        return ""
    spread = "" if speed.interval is None else f" ({_times(speed.interval[0])} to {_times(speed.interval[1])})"
    return f"{_times(speed.factor)}x{spread}"


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


def _advice(pairs: Sequence[Pair], comparison: Comparison) -> str:
    tuned = "" if comparison.tuned else " (not tuned)"
    if (best := winner(pairs)) is not None:
        return f"Use {best.method}{tuned}: {_claim(best, 'it')}."
    if (why := _unknown(pairs, comparison)) is not None:
        return f"{why[0]}{tuned}: {why[1]}."
    told = ", ".join(f"{pair.method} {pair.verdict}" for pair in pairs)
    by = f" by more than {pairs[0].metric.amount(pairs[0].margin)}" if any(pair.small for pair in pairs) else ""
    reason = _claim(pairs[0], pairs[0].method) if len(pairs) == 1 else f"no method is better{by} ({told})"
    return f"Stay with {comparison.baseline}{tuned}: {reason}."


def _unknown(pairs: Sequence[Pair], comparison: Comparison) -> tuple[str, str] | None:
    """A word and the reason where no advice can be given; None where all is known."""
    baseline, first = comparison.baseline, pairs[0]
    if first.failed_baseline:
        return "Inconclusive", f"{baseline} diverged with {listed(first.failed_baseline)}: nothing to compare with"
    if len(first.at_chance) > 1:
        return "Inconclusive", f"{baseline} and {first.method} do no better than a constant guess yet"
    unsure = [pair for pair in pairs if pair.verdict in ("inconclusive", "too few seeds")]
    if not unsure:
        return None
    near = unsure[0]
    if near.difference is None:
        return "Too few seeds", f"no seed has a finished run of {baseline} and of another method"
    at = f"{near.method} is at {change(near)} against {baseline}"
    if all(pair.verdict in ("too few seeds", "diverged") for pair in pairs):
        enough = least_seeds(_tests(comparison))
        return "Too few seeds", f"{len(near.seeds)} cannot show a difference, {enough} can; so far {at}"
    spread = "" if near.difference.interval is None else f" ({near.metric.range(near.difference.interval)})"
    return "Inconclusive", f"stay with {baseline} for now; {at}{spread}"


def _claim(pair: Pair, subject: str) -> str:
    """What was found of a method, as the rest of a sentence about it."""
    if pair.verdict == "diverged":
        return f"{subject} diverged with {listed(pair.failed)}"
    if pair.difference is None:
        lost = f"{pair.baseline} diverged with {listed(pair.failed_baseline)}"
        why = lost if pair.failed_baseline else "no common seed"
        return f"{subject} cannot be compared with {pair.baseline}: {why}"
    parts = [part for part in (_speed(pair), _end(pair, subject == "it")) if part]
    rising = "rising" if pair.metric.larger_is_better else "falling"
    after = ""
    if pair.rising and pair.constant_rate and not pair.levelled_off:
        after = f"; {'both are' if len(pair.rising) > 1 else f'{pair.rising[0]} is'} still {rising}"
    return f"{subject} {' and '.join(parts)}{after}"


def _speed(pair: Pair) -> str:
    speed = pair.speed
    if speed is None or speed.factor is None or speed.interval is None or pair.sooner is None:
        return ""
    times = sorted((end if pair.sooner == "sooner" else 1 / end) for end in speed.interval)
    size = speed.factor if pair.sooner == "sooner" else 1 / speed.factor
    return (
        f"gets to {pair.baseline}'s final {pair.metric.words} {_times(size)} times {pair.sooner}"
        f" ({_times(times[0])} to {_times(times[1])}{_late(pair)})"
    )


def _end(pair: Pair, short: bool) -> str:
    found, metric = pair.difference, pair.metric
    assert found is not None
    size = metric.amount(found.mean, found.interval)
    interval = found.interval or (found.mean, found.mean)
    signed = metric.signed(found.mean, interval)
    low, high = sorted(map(abs, interval))
    spread = f"({metric.range((low, high))})"
    side = "higher" if found.mean > 0 else "lower"
    after = f"after {count(pair.rounds, 'round')}{'' if pair.constant_rate else ' of this schedule'}"
    little = f", too little to matter (less than {metric.amount(pair.margin)})" if pair.small else ""
    words = {
        **dict.fromkeys(("better", "worse"), f"ends {size} {side} {spread}{little}"),
        "ahead": f"is {size} ahead {'' if short else f'of {pair.baseline} '}{after} {spread}{little}",
        "behind": f"is {size} behind {pair.baseline} {after} {spread}{little}",
        "equal": f"ends equal, within {metric.amount(pair.margin)}",
        "inconclusive": f"is at {signed} against {pair.baseline} {after}, which is inconclusive",
        "too few seeds": f"is at {change(pair)} against {pair.baseline} {after}",
    }
    return words[pair.verdict]


def _where(setting: str, comparison: Comparison) -> str:
    """The setting, where there are several."""
    return f"{setting}: " if setting and len({pair.setting for pair in comparison.pairs}) > 1 else ""


def _late(pair: Pair) -> str:
    """Who of the seeds did not arrive."""
    late = pair.speed.late if pair.speed else 0
    return f"; {late} of {count(len(pair.seeds), 'seed')} did not get there" if late else ""


def _times(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _tests(comparison: Comparison) -> int:
    return max(comparison.family, 2 * sum(pair.verdict != "diverged" for pair in comparison.pairs), 1)


def _names(pairs: Iterable[Pair]) -> str:
    return ", ".join(dict.fromkeys(pair.method for pair in pairs))


def listed(seeds: Sequence[int]) -> str:
    """Seeds by their numbers."""
    return f"{'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _command(arguments: Sequence[str], option: str, value: str) -> str:
    """The command with an option changed or added; the option alone where the command is not known."""
    if not arguments:
        return f"{option} {value}"
    changed = [*arguments, option, value] if option == "--set" else with_option(arguments, option, value)
    return shlex.join(["ecgr", *changed])


def with_option(arguments: Sequence[str], option: str, value: str) -> list[str]:
    """The arguments with an option's value changed, or added.

    >>> with_option(["compare", "--seeds", "3", "--json"], "--seeds", "10")
    ['compare', '--json', '--seeds', '10']
    >>> with_option(["compare", "--seeds=3"], "--seeds", "10")
    ['compare', '--seeds', '10']
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument != option and not argument.startswith(f"{option}="):
            kept.append(argument)
        skip = argument == option and not skip
    return [*kept, option, value]
