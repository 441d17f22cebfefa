"""An answer in a notebook: advice, the picture, the table, cautions.

It needs no extra, no style sheet and no script. Every name is escaped, and control characters are made visible.
"""

from html import escape
from typing import Any

from ecgr.analysis.comparison import Comparison
from ecgr.report.picture import ends_of, to_svg
from ecgr.report.table import results_table
from ecgr.report.words import advice, cautions, visible, worth


def to_html(comparison: Comparison) -> str:
    """A piece of HTML that stands by itself."""
    if not comparison.pairs:
        return "<p>Nothing was compared.</p>"
    table = visible(results_table(comparison))
    return "\n".join(
        [
            '<div class="ecgr-answer tex2jax_ignore mathjax_ignore">',  # a dollar in a name is no formula
            f"<p><strong>{escape(visible(advice(comparison)))}</strong></p>",
            *(f'<div style="max-width: 560px">{visible(to_svg(ends))}</div>' for ends in ends_of(comparison)),
            "<table>",
            f'<caption style="text-align: left">{escape(table["caption"])}</caption>',
            f"<thead>{_row('th', [column['label'] for column in table['columns']], table)}</thead>",
            "<tbody>",
            *(_row("td", [cell["text"] for cell in row], table) for row in table["rows"]),
            "</tbody></table>",
            *(f"<p>{escape(visible(line))}</p>" for line in worth(comparison, everything=False)),
            *(f"<p>{escape(visible(line))}</p>" for line in cautions(comparison)),
            "</div>",
        ]
    )


def _row(tag: str, texts: list[str], table: dict[str, Any]) -> str:
    sides = ("right" if column["numeric"] else "left" for column in table["columns"])
    cells = (
        f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for side, text in zip(sides, texts, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"
