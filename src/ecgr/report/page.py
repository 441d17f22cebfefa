"""The report page: one HTML file that opens offline, makes no request, and trusts no name.

Records are read into plain values; a template with autoescape prints them, and what the scripts draw stands as JSON in
a data block. A content security policy allows only the scripts and styles on the page, by their hashes. Style
attributes alone are free: plotly sets them to draw heat-map cells with sharp edges, and they cannot run anything.
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ecgr.analysis.comparison import Comparison
from ecgr.analysis.records import group_runs
from ecgr.errors import missing_extra
from ecgr.files import make_directory, write_atomically
from ecgr.report.page_data import colour_numbers, page_data
from ecgr.report.page_text import page_text
from ecgr.report.picture import ends_of, to_svg
from ecgr.report.words import visible

SCRIPTS = ("base.js", "tables.js", "curves.js", "steps.js", "federation.js", "start.js")


def write_report(comparison: Comparison, path: Path) -> Path:
    """Write the page about a comparison and its runs to ``path``, which it returns."""
    page = render(comparison)
    make_directory(path.parent)
    write_atomically(path, page.encode())
    return path


def render(comparison: Comparison) -> str:
    """The page about a comparison and its runs; the same records give the same page."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from jinja2.utils import htmlsafe_json_dumps
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise missing_extra("the report", "report") from None
    groups = group_runs(comparison.runs, comparison.baseline)
    data, text = visible(page_data(groups, comparison)), visible(page_text(groups, comparison))
    colours = colour_numbers((run.summary.method for run in comparison.runs), comparison.baseline)
    # Only these files of the package, plotly's own and small pictures, which escape, are put on the page as they are.
    style, plotly = _static("report.css"), _seal(get_plotlyjs())
    script = "(() => {\n'use strict';\n" + "\n".join(map(_static, SCRIPTS)) + "\n})();\n"
    environment = Environment(
        loader=PackageLoader("ecgr.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        text,
        sections=sections(data, text),
        pictures={visible(ends.setting): Markup(visible(to_svg(ends, colours))) for ends in ends_of(comparison)},
        data=htmlsafe_json_dumps(data, separators=(",", ":"), sort_keys=False),
        drawn=data,
        policy=policy(scripts=[plotly, script], styles=[style, ""]),
        style=Markup(style),
        plotly=Markup(plotly),
        plotly_styles=injected_styles(plotly),
        script=Markup(script),
    )


def sections(data: Mapping[str, Any], text: Mapping[str, Any]) -> list[dict[str, str]]:
    """The sections that there is something for, as the page's menu names them."""
    there = {
        "answer": ("Answer", True),
        "curves": ("Curves", text["curves"]),
        "tuning": ("Tuning", text["tuning"]),
        "statistics": ("Statistics", text["sentences"]),
        "steps": ("Kept steps", data["steps"]),
        "federation": ("Federation", data["federations"]),
        "cost": ("Cost", text["cost"]),
        "settings": ("Settings", True),
    }
    return [{"id": name, "name": title} for name, (title, shown) in there.items() if shown]


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The page's content security policy: nothing but itself.

    ``styles`` holds the empty text, because plotly adds an empty style element and fills it through the CSSOM. Images
    are data or blob URLs: what plotly paints heat maps with, and what its download button makes.
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def injected_styles(plotly: str) -> list[str]:
    """Ids of style elements that plotly would fill for its maps; where they exist already, it leaves them alone.

    >>> injected_styles('if(!document.getElementById("' + 64 * "a" + '")){}') == [64 * "a"]
    True
    """
    return re.findall(r'if\(!document\.getElementById\("([0-9a-f]{64})"\)\)', plotly)


def _static(name: str) -> str:
    return _seal((files("ecgr.report") / "templates" / name).read_text(encoding="utf-8"))


def _seal(text: str) -> str:
    """Text that cannot end its element, with the line ends that a browser hashes."""
    return text.replace("\r\n", "\n").replace("</script", "<\\/script").replace("</style", "<\\/style")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
