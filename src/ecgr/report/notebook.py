"""An answer in a notebook: its sentence, then its table with the page's small pictures.

It needs no extra, no style sheet and no script. Every name is escaped, and control characters are made visible.
"""

from html import escape
from typing import Any

from ecgr.analysis.verdicts import Comparison
from ecgr.report.cards import SIZE, cards, to_svg
from ecgr.report.table import results_table
from ecgr.report.words import answer, notes, visible


def to_html(comparison: Comparison) -> str:
    """A piece of HTML that stands by itself."""
    if not comparison.pairs:
        return "<p>Nothing was compared.</p>"
    table = visible(results_table(comparison))
    pictures = visible(cards(comparison))
    verdict = len(table["columns"]) - 1  # the picture stands before it
    numeric = [column["numeric"] for column in table["columns"]]
    heads = [_cell("th", escape(column["label"]), column["numeric"]) for column in table["columns"]]
    rows = [
        [_cell("td", escape(cell["text"]), right) for cell, right in zip(row, numeric, strict=True)]
        for row in table["rows"]
    ]
    heads.insert(verdict, _cell("th", escape(_axis(pictures)), False))
    following = iter(pictures)
    for row, cells in zip(rows, table["rows"], strict=True):
        card = None if cells[-1]["style"] == "baseline" else next(following)
        row.insert(verdict, f'<td style="width: {SIZE["width"]}px">{_figure(card)}</td>')
    return "\n".join(
        [
            '<div class="ecgr-answer tex2jax_ignore mathjax_ignore">',  # a dollar in a name is no formula
            f"<p><strong>{escape(visible(answer(comparison)))}</strong></p>",
            "<table>",
            f'<caption style="text-align: left">{escape(table["caption"])}</caption>',
            f"<thead><tr>{''.join(heads)}</tr></thead>",
            "<tbody>",
            *(f"<tr>{''.join(row)}</tr>" for row in rows),
            "</tbody></table>",
            *(f"<p>{escape(visible(note))}</p>" for note in notes(comparison)),
            "</div>",
        ]
    )


def _figure(card: dict[str, Any] | None) -> str:
    return to_svg(card["picture"]) if card and card["picture"] else ""


def _axis(pictures: list[dict[str, Any]]) -> str:
    """What the pictures show, where they show one thing."""
    units = dict.fromkeys(card["picture"]["unit"] for card in pictures if card["picture"])
    return f"{', '.join(units)}; better is to the right" if units else ""


def _cell(tag: str, content: str, right: bool) -> str:
    return f'<{tag} style="text-align: {"right" if right else "left"}">{content}</{tag}>'
