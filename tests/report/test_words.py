"""Advice: a sentence for each combination of verdicts, that a person can follow."""

from dataclasses import replace

import pytest

from ecgr.analysis.comparison import Reference
from ecgr.analysis.curves import Estimate, Speed
from ecgr.analysis.findings import Pair
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.report.words import advice, cautions, details, sentence, winner, worth
from support.findings import comparison_of, pair_of

CASES = {
    "ahead and sooner": (
        [pair_of("ahead", sooner="sooner", rising=("fedavg",))],
        "Use fedavgm: it gets to fedavg's final accuracy 2.0 times sooner (1.7 to 2.3) and is 0.7 points ahead after 60"
        " rounds (0.1 to 1.3); fedavg is still rising.",
    ),
    "ahead of a schedule": (
        [pair_of("ahead", constant_rate=False, rising=("fedavg",))],
        "Use fedavgm: it is 0.7 points ahead after 60 rounds of this schedule (0.1 to 1.3).",
    ),
    "both rise": (
        [pair_of("ahead", rising=("fedavg", "fedavgm"))],
        "Use fedavgm: it is 0.7 points ahead after 60 rounds (0.1 to 1.3); both are still rising.",
    ),
    "an unknown among them": (
        [replace(pair_of("worse", -0.02), method="fedacg"), pair_of("inconclusive", 0.002)],
        "Inconclusive: stay with fedavg for now; fedavgm is at +0.2 points against fedavg (-0.4 to 0.8).",
    ),
    "better": ([pair_of("better")], "Use fedavgm: it ends 0.7 points higher (0.1 to 1.3)."),
    "better and later": (
        [pair_of("better", factor=0.5, sooner="later")],
        "Use fedavgm: it gets to fedavg's final accuracy 2.0 times later (1.7 to 2.4) and ends 0.7 points higher"
        " (0.1 to 1.3).",
    ),
    "only sooner": (
        [pair_of("equal", 0.001, sooner="sooner")],
        "Use fedavgm: it gets to fedavg's final accuracy 2.0 times sooner (1.7 to 2.3) and ends equal, within 0.5"
        " points.",
    ),
    "sooner, its end inconclusive": (
        [pair_of("inconclusive", 0.002, sooner="sooner")],
        "Use fedavgm: it gets to fedavg's final accuracy 2.0 times sooner (1.7 to 2.3) and is at +0.2 points (-0.4 to"
        " 0.8) against fedavg after 60 rounds, which is inconclusive.",
    ),
    "equal": ([pair_of("equal", 0.001)], "Stay with fedavg: fedavgm ends equal, within 0.5 points."),
    "worse": ([pair_of("worse", -0.02)], "Stay with fedavg: fedavgm ends 2.0 points lower (1.4 to 2.6)."),
    "behind": (
        [pair_of("behind", -0.02, rising=("fedavgm",))],
        "Stay with fedavg: fedavgm is 2.0 points behind fedavg after 60 rounds (1.4 to 2.6); fedavgm is still rising.",
    ),
    "inconclusive": (
        [pair_of("inconclusive", 0.002)],
        "Inconclusive: stay with fedavg for now; fedavgm is at +0.2 points against fedavg (-0.4 to 0.8).",
    ),
    "few seeds": (
        [pair_of("too few seeds", 0.02, seeds=(0, 1, 2))],
        "Too few seeds: 3 cannot show a difference, 7 can; so far fedavgm is at +2.0 points against fedavg.",
    ),
    "diverged": (
        [pair_of("diverged", difference=None, speed=None, failed=(3,))],
        "Stay with fedavg: fedavgm diverged with seed 3.",
    ),
    "the baseline diverged": (
        [pair_of("inconclusive", difference=None, speed=None, failed_baseline=(3, 4))],
        "Inconclusive: fedavg diverged with seeds 3, 4: nothing to compare with.",
    ),
    "nothing learned": (
        [pair_of("inconclusive", at_chance=("fedavg", "fedavgm"))],
        "Inconclusive: fedavg and fedavgm do no better than a constant guess yet.",
    ),
    "better by too little": (
        [pair_of("better", 0.008, margin=0.02)],
        "Stay with fedavg: fedavgm ends 0.8 points higher (0.2 to 1.4), too little to matter (less than 2.0 points).",
    ),
    "none better of several, one by too little": (
        [pair_of("better", 0.008, margin=0.02), replace(pair_of("worse", -0.02), method="fedacg")],
        "Stay with fedavg: no method is better by more than 2.0 points (fedavgm better, fedacg worse).",
    ),
    "none better of several": (
        [pair_of("equal", 0.001), replace(pair_of("worse", -0.02), method="fedacg")],
        "Stay with fedavg: no method is better (fedavgm equal, fedacg worse).",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_line_is_advice(case: str) -> None:
    pairs, expected = CASES[case]
    assert advice(comparison_of(*pairs)) == expected


def test_what_was_not_tuned_is_said_in_the_first_line() -> None:
    for pairs, expected in CASES.values():
        head, _, rest = expected.partition(":")
        assert advice(comparison_of(*pairs, tuned=False)) == f"{head} (not tuned):{rest}"


def test_an_end_counts_more_than_speed_and_among_the_fast_the_fastest_wins() -> None:
    slow, fast = pair_of("equal", 0.001, 1.5, sooner="sooner"), pair_of("equal", 0.0, 3.0, sooner="sooner")
    assert winner([slow, replace(fast, method="b")]) == replace(fast, method="b")
    higher = replace(pair_of("ahead", 0.03), method="c")
    assert winner([slow, fast, higher]) == higher
    assert winner([pair_of("behind", -0.02, sooner="sooner")]) is None


def test_of_methods_that_end_alike_the_one_that_sends_least_is_advised() -> None:
    def ending(method: str, mean: float, sent: float, spread: float = 0.01) -> Pair:
        found = Estimate.of([mean + spread * (-1) ** seed for seed in range(10)])
        return replace(pair_of("ahead", mean), method=method, difference=found, sent=sent)

    dear, cheap = ending("dear", 0.012, 300.0), ending("cheap", 0.010, 200.0, -0.01)
    assert winner([dear, cheap]) == cheap
    (told,) = worth(comparison_of(dear, cheap))
    assert told == "dear ends +0.2 points (-1.3 to 1.7) beside it, and sends 1.5 times as much."
    little = ending("dear", 0.012, 300.0, -0.01)  # better in every seed, by less than the margin
    assert winner([little, cheap]) == cheap
    better = ending("dear", 0.016, 300.0, -0.01)
    assert winner([better, cheap]) == better
    assert winner([dear, replace(cheap, sent=None)]) == dear


def test_an_error_is_told_in_its_own_unit_and_direction() -> None:
    years = Quantity("mae", "years", larger_is_better=False)
    pair = pair_of("better", -0.25, metric=years, score=2.25, baseline_score=2.5)
    assert advice(comparison_of(pair)) == "Use fedavgm: it ends 0.25 years lower (0.24 to 0.26)."
    assert "accuracy" not in details(pair, 2)
    assert "point" not in details(pair, 2)


def test_each_setting_has_its_advice() -> None:
    pairs = [pair_of("better", setting="alpha=1"), pair_of("equal", 0.001, setting="alpha=9")]
    assert advice(comparison_of(*pairs)) == (
        "alpha=1: Use fedavgm: it ends 0.7 points higher (0.1 to 1.3)."
        " alpha=9: Stay with fedavg: fedavgm ends equal, within 0.5 points."
    )


@pytest.mark.parametrize(
    ("above", "told"),
    [
        (-0.39, "Federating is worth it: alone 41.0 %, fedavg 80.0 %, pooled 97.0 %."),
        (0.0, "Whether federating is worth it is inconclusive: alone 80.0 %, fedavg 80.0 %, pooled 97.0 %."),
        (0.05, "Federating is not worth it: alone 85.0 %, fedavg 80.0 %, pooled 97.0 %."),
    ],
)
def test_the_references_say_what_federating_is_worth(above: float, told: str) -> None:
    def reference(name: str, gain: float) -> Reference:
        found = Estimate((gain,) * 10, gain, (gain - 0.01, gain + 0.01))
        return Reference(name, "", 0.8 + gain, found, ACCURACY, 0.005)

    both = (reference("alone", above), reference("pooled", 0.17))
    pair = pair_of("ahead", gap_closed=0.45)
    assert worth(comparison_of(pair, references=both)) == [f"{told} fedavgm closes 45 % of what is left."]
    equal = comparison_of(pair_of("equal", gap_closed=0.02), references=both)
    assert worth(equal) == [told]
    assert worth(comparison_of(pair)) == []


def test_a_winner_is_held_against_server_momentum() -> None:
    momentum = pair_of("ahead", 0.01)
    told = {
        0.02: "More than server momentum in the end: a is at +2.0 points (1.8 to 2.2) against fedavgm.",
        0.001: "Not shown to do more than server momentum in the end: a is at +0.1 points (-0.1 to 0.3) against"
        " fedavgm.",
    }
    for above, line in told.items():
        wobble = [0.01 + above + (seed - 4.5) / 1000 for seed in range(10)]
        best = pair_of("ahead", method="a", difference=Estimate.of(wobble))
        assert worth(comparison_of(momentum, best)) == [line]
        assert worth(comparison_of(momentum)) == worth(comparison_of(best)) == []


COMMAND = ["compare", "quickstart", "--seeds", "10"]


def test_each_caution_has_the_command_that_resolves_it() -> None:
    ahead = comparison_of(pair_of("ahead"))
    assert cautions(ahead, COMMAND) == [
        "Not levelled off, so ranks can change: ecgr compare quickstart --seeds 10 --until-level 240"
    ]
    assert cautions(ahead) == ["Not levelled off, so ranks can change: --until-level 240"]
    (few,) = cautions(comparison_of(pair_of("too few seeds", seeds=(0, 1, 2), levelled_off=True)), COMMAND)
    assert few == "Only 3 seeds: ecgr compare quickstart --seeds 10"
    lost = pair_of("diverged", difference=None, speed=None, failed=(3,), method="fedavg", baseline="x")
    (line,) = cautions(comparison_of(lost), COMMAND)  # a tenth of its learning rate
    assert line == "fedavg diverged: ecgr compare quickstart --seeds 10 --set optimizer.lr=0.01"
    untuned = comparison_of(pair_of("better"), tuned=False)
    assert cautions(untuned) == ["Not tuned; a rate can suit one method and not another: compare without --no-tune"]
    (line,) = cautions(untuned, [*COMMAND, "--no-tune"])
    assert line.endswith("ecgr compare quickstart --seeds 10")
    assert cautions(comparison_of(pair_of("better"))) == []


def test_seeds_are_asked_for_only_where_they_would_decide() -> None:
    spread = (0.03, -0.01, 0.02, 0.01, -0.005, 0.02, 0.015, 0.01, -0.01, 0.02)
    pair = pair_of("inconclusive", difference=Estimate.of(spread), levelled_off=True)
    found = comparison_of(pair)
    needed = found.seeds_needed(pair)
    assert needed is not None
    assert cautions(found, COMMAND) == [
        f"{needed} seeds would likely decide fedavgm: ecgr compare quickstart --seeds {needed}"
    ]
    small = replace(pair, difference=Estimate.of([gain - 0.0099 for gain in spread]))
    assert "more seeds would hardly decide" in cautions(comparison_of(small), COMMAND)[0]


def test_seeds_that_do_not_arrive_are_counted_and_too_many_are_why_there_is_no_factor() -> None:
    pair = pair_of("better", sooner="sooner")
    assert pair.speed is not None
    late = replace(pair, speed=replace(pair.speed, late=1))
    assert "(1.7 to 2.3; 1 of 10 seeds did not get there)" in sentence(late)
    never = pair_of("worse", -0.02, speed=Speed(0.8, None, 9, 0, (60.0, 50.0)))
    assert "times" not in sentence(never)
    assert "9 of 10 seeds did not get there" in details(never, 2)
    (line,) = cautions(comparison_of(pair_of("better", speed=Speed(0.8, None, 0, 3, (20.0, 40.0)))))
    assert line == "No factors of speed: seeds differ so much that fedavg gets to its own mean in 7 of 10 only"
