"""An answer in a notebook: its sentence, then its table with the page's small pictures, best first.

It needs no extra, no style sheet and no script. Every name is escaped, and control characters are made visible.
"""

from html import escape
from typing import Any

from ecgr.analysis.comparison import Comparison
from ecgr.report.page.answers import answers
from ecgr.report.page.dots import SIZE, to_svg
from ecgr.report.page.text import comparison_table
from ecgr.report.presentation import to_notes
from ecgr.report.sentences import answer
from ecgr.report.visible import visible


def to_html(comparison: Comparison) -> str:
    """A piece of HTML that stands by itself."""
    table = visible(comparison_table(comparison))
    if table is None:
        return "<p>Nothing was compared.</p>"
    cards = visible(answers(comparison))
    verdict = len(table["columns"]) - 1  # the picture stands before it
    numeric = [column["numeric"] for column in table["columns"]]
    heads = [_cell("th", escape(column["label"]), column["numeric"]) for column in table["columns"]]
    rows = [
        [_cell("td", escape(cell["text"]), right) for cell, right in zip(row, numeric, strict=True)]
        for row in table["rows"]
    ]
    heads.insert(verdict, _cell("th", escape(_axis(cards)), False))
    for row, card in zip(rows, cards, strict=True):
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
            *(f"<p>{escape(visible(note))}</p>" for note in to_notes(comparison).plain.splitlines()),
            "</div>",
        ]
    )


def _figure(card: dict[str, Any]) -> str:
    return to_svg(card["picture"]) if card["picture"] else ""


def _axis(cards: list[dict[str, Any]]) -> str:
    """What the pictures show, where they show one thing."""
    units = dict.fromkeys(card["picture"]["unit"] for card in cards if card["picture"])
    return f"{', '.join(units)}; better is to the right" if units else ""


def _cell(tag: str, content: str, right: bool) -> str:
    return f'<{tag} style="text-align: {"right" if right else "left"}">{content}</{tag}>'
