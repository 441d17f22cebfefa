"""The table of ``which_method.md``: what to try in which federation, what that needs, and how it is known.

What a method needs is counted by playing a round of it; what was measured is read from the records in
``docs/results/data``. A new record is a word in ``ROWS``. ``python docs/guide/which_method.py``, or `make results`,
writes the table into the page.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ecgr.experiment.catalogue import cost_of
from ecgr.experiment.methods import Method

PAGE = Path(__file__).with_name("which_method.md")
DATA = PAGE.parents[1] / "results" / "data"
BEGIN, END = "<!-- written by docs/guide/which_method.py -->\n", "<!-- end of the table -->"
HEAD = """\
| skew | who takes part | try | state at a site | traffic | measured here | literature |
|---|---|---|---|---|---|---|
"""


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
ROWS = (
    Row(STRONG, ALL, "drift_correction", (("demo", ""), ("tuned-mnist", ""))),
    Row(STRONG, ALL, "scaffold", (("demo", ""),), "Karimireddy et al., arXiv 1910.06378"),
    Row(STRONG, ALL, "fedacg", (("demo", ""),), "Kim et al., arXiv 2201.03172"),
    Row(STRONG, ALL, "fedavg+ecgr", (("demo", ""), ("main", "data.name=mnist")), "arXiv 2601.03584"),
    Row(STRONG, FEW, "fedacg", (), "Kim et al., arXiv 2201.03172"),
    Row(STRONG, FEW, "fedcm", (), "Xu et al., arXiv 2106.10874"),
    Row(STRONG, FEW, "feddyn", (), "Acar et al., arXiv 2111.04263"),
    Row(MILD, ANY, "fedavg[balanced_softmax]", (), "Ren et al., arXiv 2007.10740"),
    Row(MILD, ANY, "fedavg[fedlc]", (), "Zhang et al., arXiv 2209.00189"),
    Row("other numbers of samples, so of steps", ANY, "fednova", (), "Wang et al., arXiv 2007.07481"),
    Row("only the server can be changed", ANY, "fedavgm", (), "Hsu et al., arXiv 1909.06335"),
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
    for pair in json.loads((DATA / record / "comparison.json").read_text(encoding="utf-8"))["pairs"]:
        if pair["method"] == method and setting in pair["setting"]:
            found = pair["metrics"]["last5"]
            low, high = (100 * end for end in found["interval"])
            cause = {None: "", "both": ", by both direction and length"}.get(pair["cause"], f", by {pair['cause']}")
            yield (
                f"{pair['verdict']}{cause}, {100 * found['mean_difference']:+.1f} points ({low:+.1f} to {high:+.1f}):"
                f" [{record}](../results/data/{record}/comparison.json)"
            )


def with_table(page: str) -> str:
    """The page with its table as the records have it now."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
