"""What was measured, where readers ask for it: README's few sentences, and the table of methods by situation.

What a method needs is counted by playing a round of it; what was measured is read from the records in
``docs/results/data``. A new record is a word in the tables of its situation. ``python docs/measured.py``, or
`make results`, writes both into their pages.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecgr.config.catalogue import cost_of
from ecgr.config.methods import Method

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "data"
BEGIN, END = "<!-- measured: written by `make results` -->\n", "<!-- end of what was measured -->"
HEAD = """\
| skew | who takes part | candidate | state at a site | traffic | measured here | literature |
|---|---|---|---|---|---|---|
"""
SKEWED = {
    "demo": "digits",
    "tuned-mnist": "reduced MNIST",
    "tuned-fashion_mnist": "reduced Fashion-MNIST",
    "leaderboard-mnist001": "MNIST at alpha 0.01",
    "leaderboard-fashion001": "Fashion-MNIST at alpha 0.01",
}
MILDER = {"leaderboard-mnist01": "MNIST at alpha 0.1", "leaderboard-fashion01": "Fashion-MNIST at alpha 0.1"}
MILD = {"leaderboard-mnist1": "MNIST at alpha 1", "leaderboard-fashion1": "Fashion-MNIST at alpha 1"}
SAMPLED = {"leaderboard-fashion100": "Fashion-MNIST, a tenth of 100 clients"}
NATURAL = {"leaderboard-heart": "heart disease at four hospitals"}
"""Records by situation, every method tuned, and what they are of."""
IDEAS = {
    "drift_correction": "each client takes off its own drift, as in SCAFFOLD but damped, and the server looks ahead",
    "scaffold": "each client takes off its own drift",
    "fedcm": "clients mix the last global step into their gradients",
    "fedavgm": "momentum at the server",
    "fedavg/average": "a longer server step and nothing else",
    "fedacg": "clients start ahead along the server's momentum",
    "fednova": "updates are averaged as if all clients took as many steps",
    "feddyn": "clients are pulled so that their optima agree",
    "fedexp": "longer server steps where updates disagree",
}
"""What a method does, for somebody who has not heard of it."""
OPEN = {"not decided": "open", "too few seeds": "open"}
"""Verdicts in a word."""


@dataclass(frozen=True, slots=True)
class Row:
    """A situation, a method to try in it, and what there is to say for it.

    Attributes:
        measured: records below ``docs/results/data``, each with the part of a setting that picks its pair, or "".
        literature: who says so.
    """

    skew: str
    participation: str
    method: str
    measured: tuple[tuple[str, str], ...] = ()
    literature: str = ""


ALL, FEW, ANY = "all, every round", "a few a round", "any"
FEW_CLASSES, SOME_CLASSES = "one or two classes a client (alpha 0.01, 0.05)", "two to four classes (alpha 0.1)"
MOST_CLASSES, UNLIKE_BY_NATURE = "most classes, in other shares (alpha 1)", "natural: sites that differ a little"


def run_of(*records: Mapping[str, str]) -> dict[str, str]:
    """The records that are there, and what they are of."""
    return {record: title for own in records for record, title in own.items() if (DATA / record).is_dir()}


def kept(records: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Those that are there, for a row: no setting picks a pair."""
    return tuple((record, "") for record in run_of(records))


UNLIKE, MIXED, ALIKE, SOME, SITES = map(kept, (SKEWED, MILDER, MILD, SAMPLED, NATURAL))
EVERYWHERE = (*UNLIKE, *MIXED, *ALIKE, *SITES)
AFTER_SCAFFOLD = "after Karimireddy et al., arXiv 1910.06378"
ROWS = (
    Row(FEW_CLASSES, ALL, "drift_correction", UNLIKE, AFTER_SCAFFOLD),
    Row(FEW_CLASSES, ALL, "fedavgm(server_momentum=0.5)", UNLIKE, "Hsu et al., arXiv 1909.06335"),
    Row(FEW_CLASSES, ALL, "fedcm", UNLIKE, "Xu et al., arXiv 2106.10874"),
    Row(FEW_CLASSES, ALL, "fedacg", UNLIKE, "Kim et al., arXiv 2201.03172"),
    Row(FEW_CLASSES, ALL, "scaffold", UNLIKE, "Karimireddy et al., arXiv 1910.06378"),
    Row(FEW_CLASSES, ALL, "fedavg+ecgr", (*UNLIKE, ("main", "data.name=mnist")), "arXiv 2601.03584"),
    Row(SOME_CLASSES, ALL, "drift_correction", MIXED, AFTER_SCAFFOLD),
    Row(SOME_CLASSES, ALL, "fedavgm(server_momentum=0.5)", MIXED, "Hsu et al., arXiv 1909.06335"),
    Row(SOME_CLASSES, ALL, "fedacg", MIXED, "Kim et al., arXiv 2201.03172"),
    Row(SOME_CLASSES, ALL, "fedcm", MIXED, "Xu et al., arXiv 2106.10874"),
    Row(SOME_CLASSES, ALL, "fedavg+ecgr", MIXED, "arXiv 2601.03584"),
    Row(SOME_CLASSES, ANY, "fedavg[balanced_softmax]", MIXED, "Ren et al., arXiv 2007.10740"),
    Row(MOST_CLASSES, ALL, "drift_correction", ALIKE, AFTER_SCAFFOLD),
    Row(MOST_CLASSES, ANY, "fedavg[balanced_softmax]", ALIKE, "Ren et al., arXiv 2007.10740"),
    Row(MOST_CLASSES, ANY, "fedavg[fedlc]", ALIKE, "Zhang et al., arXiv 2209.00189"),
    Row(UNLIKE_BY_NATURE, ALL, "feddyn", SITES, "Acar et al., arXiv 2111.04263"),
    Row(UNLIKE_BY_NATURE, ALL, "drift_correction", SITES, AFTER_SCAFFOLD),
    Row(FEW_CLASSES, FEW, "fedacg", SOME, "Kim et al., arXiv 2201.03172"),
    Row(FEW_CLASSES, FEW, "fedcm", SOME, "Xu et al., arXiv 2106.10874"),
    Row(FEW_CLASSES, FEW, "feddyn", SOME, "Acar et al., arXiv 2111.04263"),
    Row("other numbers of samples, so of steps", ANY, "fednova", EVERYWHERE, "Wang et al., arXiv 2007.07481"),
    Row(
        "only the server can be changed",
        ANY,
        "fedavgm(server_momentum=0.5)",
        EVERYWHERE,
        "Hsu et al., arXiv 1909.06335",
    ),
    Row("only the server can be changed", ANY, "fedadam", (), "Reddi et al., arXiv 2003.00295"),
)


def table() -> str:
    """All rows."""
    return HEAD + "".join(f"| {' | '.join(_cells(row))} |\n" for row in ROWS)


def _cells(row: Row) -> tuple[str, ...]:
    cost = cost_of(Method.of(row.method))
    more = [f"{count} more {way}" for count, way in ((cost.up - 1, "up"), (cost.down - 1, "down")) if count]
    return (
        row.skew,
        row.participation,
        f"`{row.method}`",
        f"{cost.client} vector{'s' if cost.client > 1 else ''}" if cost.stateful else "none",
        ", ".join(more) or "as FedAvg",
        "; ".join(found for named in row.measured for found in measured(row.method, *named)) or "not yet",
        row.literature or "none",
    )


def measured(method: str, record: str, setting: str) -> Iterator[str]:
    """What a record says about a method, with a link to it; nothing where the method is not in it."""
    for pair in pairs(record, method, setting):
        cause = f", by {' and '.join(causes)}" if (causes := pair.get("causes")) else ""
        told = [f"{pair['verdict']}{cause}", points(pair)]
        yield f"{', '.join(dict.fromkeys(told))}: [{record}](../results/data/{record}/comparison.json)"


def pairs(record: str, method: str, setting: str = "") -> list[dict[str, Any]]:
    """A method's pairs in a record: of exactly this method, since another momentum is another method."""
    return [pair for pair in every_pair(record) if pair["method"] == method and setting in pair["setting"]]


def every_pair(record: str) -> list[dict[str, Any]]:
    """What a record's comparison holds."""
    found: list[dict[str, Any]] = json.loads((DATA / record / "comparison.json").read_text(encoding="utf-8"))["pairs"]
    return found


def points(pair: dict[str, Any]) -> str:
    """A pair's difference with its interval, in points where the metric is a share."""
    found, metric = pair["metrics"]["last5"], pair["metric"]
    if found["interval"] is None:
        return str(pair["verdict"])
    share = metric["unit"] == "share"
    factor, digits, unit = (100, 1, "points") if share else (1, 4, metric["unit"] or metric["name"].upper())
    mean, low, high = (f"{factor * value:+.{digits}f}" for value in (found["mean_difference"], *found["interval"]))
    return f"{mean} {unit} ({low} to {high})"


def judged(pair: dict[str, Any]) -> str:
    """The same with its verdict, and whether it would matter at all."""
    mean, margin = pair["metrics"]["last5"]["mean_difference"], pair["margin"]
    small = pair["verdict"] in ("better", "worse") and margin is not None and abs(mean) < margin
    return f"{points(pair)}, {OPEN.get(pair['verdict'], pair['verdict'])}{', too little to matter' if small else ''}"


def in_short() -> str:
    """Does ECGR help, why did it seem to, what does, and what these runs cannot say."""
    return _lines([_ecgr_tuned(), _ecgr_untuned()]) + _what_helps() + _hospitals() + _converged()


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ecgr_tuned() -> str:
    records = run_of(SKEWED, MILDER, MILD, SAMPLED, NATURAL)
    found = {problem: pair for record, problem in records.items() for pair in pairs(record, "fedavg+ecgr")}
    named = "; ".join(f"{problem} {judged(pair)}" for problem, pair in found.items())
    verdicts = [pair["verdict"] for pair in found.values()]
    return (
        "- **Does ECGR help?** It is the method that this package began with: damp half of a client's steps before they"
        " are sent. With every learning rate tuned, and ten seeds or more, it was shown to be better than FedAvg on"
        f" {verdicts.count('better')} of {len(verdicts)} problems, and worse on {verdicts.count('worse')}: {named}."
    )


def _ecgr_untuned() -> str:
    (paper,) = pairs("main", "fedavg+ecgr", "data.name=mnist")
    (longer,) = pairs("controls", "fedavg, server_lr=1.05", "data.name=mnist")
    (matched,) = pairs("controls", "fedavg+ecgr, step_control=match_plain", "data.name=mnist")
    return (
        f"- **Why it seemed to.** Where nothing is tuned, on reduced MNIST, ECGR gave {points(paper)}. But plain steps"
        f" made 5 % longer gave {points(longer)}, and ECGR held to the length of plain steps {points(matched)}: there,"
        " at equal length, no gain is left. Each upload keeps its length, but regulated uploads agreed more, so that"
        " their average was longer. Only this problem has these controls with ten seeds."
    )


def _what_helps() -> str:
    """Better than a tuned FedAvg on half of the problems with label skew, and worse nowhere; the surest first."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record, problem in run_of(SKEWED, MILDER, MILD, SAMPLED).items():
        for pair in every_pair(record):
            found.setdefault(pair["method"], {})[problem] = pair
    verdicts = {method: [pair["verdict"] for pair in own.values()] for method, own in found.items()}
    share = {method: own.count("better") / len(own) for method, own in verdicts.items()}
    sure = [method for method, own in verdicts.items() if share[method] >= 0.5 and not {"worse", "diverged"} & {*own}]
    sure.sort(key=lambda method: (-share[method], -len(verdicts[method])))
    told = []
    for method in sure:
        named = "; ".join(f"{problem} {judged(pair)}" for problem, pair in found[method].items())
        count = f"better on {verdicts[method].count('better')} of {len(found[method])}"
        told.append(f"  - `{method}` ({IDEAS.get(method.partition('(')[0], 'see the guide')}): {count}: {named}.")
    return (
        "- **What does help** under label skew, against a tuned FedAvg, with ten seeds each: better on half of the"
        f" problems or more and worse on none{' were' if told else ' was nothing that was tried.'}\n{_lines(told)}"
    )


def _hospitals() -> str:
    """What the same came to where clients are unlike by nature."""
    return "".join(
        f"- **Where sites differ by nature**: {problem}: `drift_correction` {judged(pair)}.\n"
        for record, problem in run_of(NATURAL).items()
        for pair in pairs(record, "drift_correction")
    )


def _converged() -> str:
    """Where even the baseline still learned at the end."""
    records = run_of(SKEWED, MILDER, MILD, SAMPLED, NATURAL)
    rising = [
        record for record in records if any(pair["baseline_method"] in pair["rising"] for pair in every_pair(record))
    ]
    return (
        f"- **Not to the end.** On {len(rising)} of these {len(records)} problems FedAvg was still getting better in"
        " its last rounds: a method that is ahead there may only be faster.\n"
    )


PAGES: dict[str, Callable[[], str]] = {"README.md": in_short, "docs/guide/which_method.md": table}


def written(page: str) -> str:
    """A page with what the records say now."""
    before, rest = (ROOT / page).read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + PAGES[page]() + END + rest.split(END)[1]


if __name__ == "__main__":
    for name in PAGES:
        (ROOT / name).write_text(written(name), encoding="utf-8")
