"""The report's figures for a paper: PDF and PNG, one and two columns wide, and its table as LaTeX and CSV.

By default the answer: differences with their intervals, length against direction where it was measured, and the curves
over rounds. On request also a panel for each value of what varies, and which steps were kept. The same records give the
same files.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from zlib import crc32

from ecgr.analysis.arms import Arm, Group, group_runs
from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import Comparison
from ecgr.errors import DataError, EnvironmentFault, missing_extra
from ecgr.files import write_atomically
from ecgr.report.figures.answers import compared_pairs, difference_rows, length_panel
from ecgr.report.figures.panels import Drawing, ablations, curve_panels, panel_grid
from ecgr.report.figures.steps import client_map, overview
from ecgr.report.figures.table import table_rows, to_csv, to_latex
from ecgr.report.page.lengths import placed_pairs
from ecgr.report.visible import visible
from ecgr.simulation.kept import Kept

WIDTHS = {"one-column": 3.35, "two-column": 6.9}
"""Inches, as in most two-column journals."""
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "grid.linewidth": 0.4,
    "grid.color": "0.85",
    "figure.dpi": 100,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # text stays text
    "text.usetex": False,
    "text.parse_math": False,  # a name with dollar signs is a name
}
LONGEST_NAME = 80


def write_figures(
    runs: Sequence[Run], comparison: Comparison, directory: Path, *, everything: bool = False
) -> list[Path]:
    """Write the figures and the table about ``runs`` and their ``comparison`` into ``directory``; the paths written."""
    if not any(run.rounds for run in runs):
        raise DataError("nothing to draw: no run has finished a round")
    groups = group_runs(runs, comparison.baseline, comparison.by)
    more = _details(groups, comparison) if everything else ()
    written = write_drawings(directory, [*_answers(groups, comparison), *more])
    rows = visible(table_rows(groups, comparison))
    for name, text in (("table.csv", to_csv(rows)), ("table.tex", to_latex(rows))):
        written.append(directory / name)
        write_atomically(written[-1], text.encode())
    return written


def write_drawings(directory: Path, drawings: Iterable[Drawing]) -> list[Path]:
    """Write every drawing in both widths and both forms."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("drawing figures", "report") from None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {directory}: {error.strerror or error}") from None
    written = []
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        for name, height, draw in drawings:
            for columns, width in WIDTHS.items():
                figure = Figure(figsize=(width, height(width)), layout="constrained")
                draw(figure)
                for form in ("pdf", "png"):
                    buffer = BytesIO()
                    metadata = {"CreationDate": None} if form == "pdf" else {"Software": None}
                    figure.savefig(buffer, format=form, metadata=metadata)
                    written.append(directory / f"{name}-{columns}.{form}")
                    write_atomically(written[-1], buffer.getvalue())
    return written


def _answers(groups: Sequence[Group], comparison: Comparison) -> Iterator[Drawing]:
    """What most readers need."""
    pairs = compared_pairs(comparison)
    for name in dict.fromkeys(pair.metric.name for pair in pairs):
        own = [pair for pair in pairs if pair.metric.name == name]
        title = "differences" if len(own) == len(pairs) else f"differences-{_slug(name)}"
        yield title, partial(_rows_height, rows=len(own)), partial(difference_rows, pairs=own)
    for curve, placed in placed_pairs(comparison):
        title = f"length-{_slug(curve.setting)}" if len(comparison.curves) > 1 else "length"
        yield title, lambda width: 0.62 * width, partial(length_panel, curve=curve, pairs=placed)
    shown = [group for group in groups if any(run.rounds for arm in group.arms for run in arm.runs)]
    yield "curves", _height(shown), partial(curve_panels, panels=shown, baseline=comparison.baseline)


def _rows_height(width: float, rows: int) -> float:
    return 0.75 + 0.3 * rows


def _height(panels: Sequence[Any]) -> Callable[[float], float]:
    return lambda width: 0.35 + 1.55 * panel_grid(len(panels), width)[0]


def _details(groups: Sequence[Group], comparison: Comparison) -> Iterator[Drawing]:
    """A panel for each value of what varies, and which steps were kept."""
    for key, panels in ablations(groups).items():
        draw = partial(curve_panels, panels=panels, baseline=comparison.baseline)
        yield f"ablation-{_slug(key)}", _height(panels), draw
    for arm, entries in _kept_by_arm(groups):
        name = _slug(arm.label)
        yield f"kept-overview-{name}", lambda width: 0.8 * width, partial(overview, entries=entries)
        yield f"kept-client-{name}", lambda width: 0.62 * width, partial(client_map, entries=entries)


def _kept_by_arm(groups: Sequence[Group]) -> Iterator[tuple[Arm, list[Kept]]]:
    """The arms that kept steps, with what their first such run kept."""
    for group in groups:
        for arm in group.arms:
            entries = next((found for run in arm.counted if (found := run.record.kept())), None)
            if entries:
                yield arm, entries


def _slug(text: str) -> str:
    """A file name from a label; a long one is cut and ends with a hash, so that no two labels share a name.

    >>> _slug("data.name=digits, fedavg, ecgr(beta=0.2)"), _slug(100 * "x")[-12:]
    ('data.name-digits-fedavg-ecgr-beta-0.2', 'xxx-5e0e5d8f')
    """
    name = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "run"
    mark = crc32(text.encode(errors="backslashreplace"))
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 9]}-{mark:08x}"
