"""What was measured, where readers ask for it: README's three sentences, and the table of methods by situation.

What a method needs is counted by playing a round of it; what was measured is read from the records in
``docs/results/data``. A new record is a word in ``ROWS`` or ``PROBLEMS``. ``python docs/measured.py``, or
`make results`, writes both into their pages.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ecgr.experiment.catalogue import cost_of
from ecgr.experiment.methods import Method

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "data"
BEGIN, END = "<!-- measured: written by `make results` -->\n", "<!-- end of what was measured -->"
HEAD = """\
| skew | who takes part | try | state at a site | traffic | measured here | literature |
|---|---|---|---|---|---|---|
"""
SKEWED = {
    "demo": "digits",
    "tuned-mnist": "reduced MNIST",
    "tuned-fashion_mnist": "reduced Fashion-MNIST",
    "leaderboard-mnist001": "MNIST of the leaderboard",
    "leaderboard-fashion001": "Fashion-MNIST of the leaderboard",
}
PROBLEMS = {record: problem for record, problem in SKEWED.items() if (DATA / record).is_dir()}
"""Records under strong skew with every method tuned, as far as they were run, and what they are of."""
MILDER = ("leaderboard-mnist01", "leaderboard-fashion01", "leaderboard-mnist1", "leaderboard-fashion1")
SAMPLED = ("leaderboard-fashion100",)
"""Records under milder skew, and with a few clients a round."""
IDEAS = {
    "drift_correction": "each client takes off its own drift, as in SCAFFOLD but damped, and the server looks ahead",
    "scaffold": "each client takes off its own drift",
    "fedcm": "clients mix the last global step into their gradients",
    "fedavgm": "momentum at the server",
    "fedacg": "clients start ahead along the server's momentum",
    "fednova": "updates are averaged as if all clients took as many steps",
    "feddyn": "clients are pulled so that their optima agree",
    "fedexp": "longer server steps where updates disagree",
}
"""What a method does, for somebody who has not heard of it."""


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


STRONG, MILD, ANY = "strong: one or two classes a client", "mild: most classes, other shares", "any"
ALL, FEW = "all, every round", "a few a round"


def kept(*records: str) -> tuple[tuple[str, str], ...]:
    """Those that were run."""
    return tuple((record, "") for record in records if (DATA / record).is_dir())


UNLIKE, MIXED, SOME = kept(*SKEWED), kept(*MILDER), kept(*SAMPLED)
ROWS = (
    Row(STRONG, ALL, "drift_correction", UNLIKE),
    Row(STRONG, ALL, "fedcm", UNLIKE, "Xu et al., arXiv 2106.10874"),
    Row(STRONG, ALL, "scaffold", UNLIKE, "Karimireddy et al., arXiv 1910.06378"),
    Row(STRONG, ALL, "fedacg", UNLIKE, "Kim et al., arXiv 2201.03172"),
    Row(STRONG, ALL, "fedavg+ecgr", (*UNLIKE, ("main", "data.name=mnist")), "arXiv 2601.03584"),
    Row(STRONG, FEW, "fedacg", SOME, "Kim et al., arXiv 2201.03172"),
    Row(STRONG, FEW, "fedcm", SOME, "Xu et al., arXiv 2106.10874"),
    Row(STRONG, FEW, "feddyn", SOME, "Acar et al., arXiv 2111.04263"),
    Row(MILD, ALL, "drift_correction", MIXED, "after Karimireddy et al., arXiv 1910.06378"),
    Row(MILD, ALL, "fedcm", MIXED, "Xu et al., arXiv 2106.10874"),
    Row(MILD, ANY, "fedavg[balanced_softmax]", MIXED, "Ren et al., arXiv 2007.10740"),
    Row(MILD, ANY, "fedavg[fedlc]", MIXED, "Zhang et al., arXiv 2209.00189"),
    Row("other numbers of samples, so of steps", ANY, "fednova", UNLIKE, "Wang et al., arXiv 2007.07481"),
    Row("only the server can be changed", ANY, "fedavgm", UNLIKE, "Hsu et al., arXiv 1909.06335"),
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
        cause = {None: "", "both": ", by both direction and length"}.get(pair["cause"], f", by {pair['cause']}")
        told = [f"{pair['verdict']}{cause}", points(pair)]
        yield f"{', '.join(dict.fromkeys(told))}: [{record}](../results/data/{record}/comparison.json)"


def pairs(record: str, method: str, setting: str = "") -> list[dict[str, Any]]:
    """A method's pairs in a record, with whatever parameters."""
    own = [pair for pair in every_pair(record) if pair["method"] == method or pair["method"].startswith(f"{method}(")]
    return [pair for pair in own if setting in pair["setting"]]


def every_pair(record: str) -> list[dict[str, Any]]:
    """What a record's comparison holds."""
    found: list[dict[str, Any]] = json.loads((DATA / record / "comparison.json").read_text(encoding="utf-8"))["pairs"]
    return found


def points(pair: dict[str, Any]) -> str:
    """A pair's difference with its interval."""
    found = pair["metrics"]["last5"]
    if found["interval"] is None:
        return str(pair["verdict"])
    low, high = (100 * end for end in found["interval"])
    return f"{100 * found['mean_difference']:+.1f} points ({low:+.1f} to {high:+.1f})"


def in_short() -> str:
    """Does ECGR help, why did it seem to, and what does."""
    return _lines([_ecgr_tuned(), _ecgr_untuned()]) + _what_helps() + _hospitals()


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ecgr_tuned() -> str:
    found = {problem: pair for record, problem in PROBLEMS.items() for pair in pairs(record, "fedavg+ecgr")}
    named = ", ".join(f"{problem} {points(pair)}" for problem, pair in found.items())
    return (
        "- **Does ECGR help?** It is the method that this package began with: damp half of a client's steps before they"
        f" are sent. With every learning rate tuned and ten seeds each, at ten unlike clients, it was"
        f" {_counted(found)}: {named}."
    )


def _counted(found: dict[str, dict[str, Any]]) -> str:
    """How often a method was shown to be better or worse than FedAvg."""
    verdicts = [pair["verdict"] for pair in found.values()]
    better, worse = verdicts.count("better"), verdicts.count("worse")
    return f"shown to be better than FedAvg on {better} of {len(verdicts)} problems, and worse on {worse}"


def _ecgr_untuned() -> str:
    (paper,) = pairs("main", "fedavg+ecgr", "data.name=mnist")
    (longer,) = pairs("controls", "fedavg, server_lr=1.05", "data.name=mnist")
    (matched,) = pairs("controls", "fedavg+ecgr, step_control=match_plain", "data.name=mnist")
    return (
        f"- **Why it seemed to.** Where nothing is tuned, on reduced MNIST, ECGR gave {points(paper)}. But plain steps"
        f" made 5 % longer gave {points(longer)}, and ECGR held to the length of plain steps {points(matched)}:"
        " at equal length no gain is left. Each upload keeps its length, but regulated uploads agree more, so that"
        " their average is longer."
    )


def _what_helps() -> str:
    """Methods that were better than a tuned FedAvg somewhere under strong skew and worse nowhere, the surest first."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record, problem in PROBLEMS.items():
        for pair in every_pair(record):
            found.setdefault(pair["method"], {})[problem] = pair
    verdicts = {method: [pair["verdict"] for pair in own.values()] for method, own in found.items()}
    sure = [method for method, own in verdicts.items() if "better" in own and not {"worse", "diverged"} & {*own}]
    sure.sort(key=lambda method: (-verdicts[method].count("better"), len(verdicts[method])))
    told = []
    for method in sure:
        named = ", ".join(f"{problem} {points(pair)}" for problem, pair in found[method].items())
        count = f"better on {verdicts[method].count('better')} of {len(found[method])}"
        told.append(f"  - `{method}` ({IDEAS.get(method.partition('(')[0], 'see the guide')}): {count}: {named}.")
    return (
        "- **What does help** under strong label skew, against a tuned FedAvg, with ten seeds each and nowhere shown to"
        f" be worse{':' if told else ': nothing that was tried.'}\n{_lines(told)}"
    )


def _hospitals() -> str:
    """What the same came to where clients are unlike by nature."""
    return "".join(
        f"- **At four hospitals** as they are (heart disease) `drift_correction` ended"
        f" {pair['metrics']['last5']['mean_difference']:+.4f} AUC from FedAvg"
        f"{', too little to matter' if abs(pair['metrics']['last5']['mean_difference']) < pair['margin'] else ''}.\n"
        for pair in pairs("leaderboard-heart", "drift_correction")
        if pair["verdict"] != "diverged"
    )


PAGES: dict[str, Callable[[], str]] = {"README.md": in_short, "docs/guide/which_method.md": table}


def written(page: str) -> str:
    """A page with what the records say now."""
    before, rest = (ROOT / page).read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + PAGES[page]() + END + rest.split(END)[1]


if __name__ == "__main__":
    for name in PAGES:
        (ROOT / name).write_text(written(name), encoding="utf-8")
