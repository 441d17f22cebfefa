"""A picture of who holds what: clients by classes, with sizes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ecgr.errors import EnvironmentFault, missing_extra


def draw_partition(counts: NDArray[np.int64], classes: Sequence[str], path: Path, title: str) -> None:
    """Write a heat map of samples by client and class, with each client's total beside it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("a picture of a partition", "report") from None
    clients, width = counts.shape
    size = max(6, 3.5 + 0.45 * min(width, 30)), max(2.8, 1.2 + 0.3 * min(clients, 60))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid, bars = figure.subplots(1, 2, width_ratios=(4, 1), sharey=True)
    drawn = np.ma.masked_equal(counts, 0)
    image = grid.imshow(drawn, aspect="auto", cmap="viridis_r", interpolation="nearest")
    figure.colorbar(image, ax=[grid, bars], label="samples of the class")
    grid.set(xlabel="class", ylabel="client", title=title)
    if width <= 30:
        grid.set_xticks(range(width), classes, rotation=0 if all(len(c) < 3 for c in classes) else 60)
    if clients <= 60:
        grid.set_yticks(range(clients))
    bars.barh(range(clients), counts.sum(axis=1), color="#4477aa")
    bars.set(xlabel="samples a client")
    bars.tick_params(labelleft=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise EnvironmentFault(f"cannot write {path}: {error}") from None
