"""Which steps were kept, with matplotlib: all clients in three dimensions, and one client as a map."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ecgr.report.page.step_maps import binned_array, by_client, kept_array
from ecgr.simulation.kept import Kept

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_POINTS = 5_000
"""More kept steps than this are drawn as cells of which more was kept than on average."""
KEPT, DAMPED = "#0072b2", "#e7ebee"


def overview(figure: "Figure", entries: Sequence[Kept]) -> None:
    """Each kept step as a square at its step, round and client; the colour is its place in the local training."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    points = overview_points(entries)
    ax = figure.add_subplot(projection="3d")
    shades = LinearSegmentedColormap.from_list("kept", ["#bcd5e1", "#3f8fbf", "#08305c"])
    size = max(4.0, min(30.0, 20_000 / max(1, len(points)))) * (figure.get_figwidth() / 6.9) ** 2
    ax.scatter(
        *points[:, :3].T,
        c=points[:, 3],
        cmap=shades,
        marker="s",
        s=size,
        linewidths=0,
        depthshade=False,
        rasterized=True,
    )
    ax.set(xlabel="step", ylabel="round", zlabel="client")
    ax.view_init(elev=24, azim=-55)
    ax.set_box_aspect((1.15, 1.15, 0.8), zoom=0.86)
    ax.tick_params(pad=-2)
    for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
        axis.set_pane_color((1, 1, 1, 0))
        axis.set_major_locator(MaxNLocator(6, integer=True))


def client_map(figure: "Figure", entries: Sequence[Kept]) -> None:
    """The map of the client with the most steps: columns are steps, rows are rounds, filled cells were kept."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    clients = by_client(entries)
    client = max(clients, key=lambda number: max(entry.steps for entry in clients[number]))
    own = clients[client]
    kept = kept_array(own)
    first, last = own[0].round, own[-1].round
    rows = np.full((last - first + 1, kept.shape[1]), np.nan)  # white where the client did not take part
    rows[[entry.round - first for entry in own]] = kept
    ax = figure.subplots()
    ax.imshow(
        rows,
        aspect="auto",
        origin="lower",
        interpolation="nearest",
        cmap=LinearSegmentedColormap.from_list("kept", [DAMPED, KEPT]),
        vmin=0,
        vmax=1,
        extent=(0.5, rows.shape[1] + 0.5, first - 0.5, last + 0.5),
    )
    ax.set(xlabel="step", ylabel="round", title=f"client {client}")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(8, integer=True))


def overview_points(entries: Sequence[Kept]) -> NDArray[np.float64]:
    """Rows of step (from 1), round, client and colour: the position of the step, or the share kept of a cell."""
    clients = by_client(entries)
    if sum(len(entry.kept) for entry in entries) <= MOST_POINTS:
        return np.array(
            [
                (step + 1, entry.round, client, (step + 0.5) / entry.steps)
                for client, own in clients.items()
                for entry in own
                for step in entry.kept
            ],
            dtype=np.float64,
        ).reshape(-1, 4)
    side = max(4, int((2 * MOST_POINTS / len(clients)) ** 0.5))
    cells = []
    for client, own in clients.items():
        array = kept_array(own)
        shares = binned_array(array, side)
        for row, column in zip(*np.nonzero(shares > np.nanmean(array)), strict=True):
            step = 1 + (column + 0.5) * array.shape[1] / shares.shape[1] - 0.5
            cells.append((step, own[row * len(own) // len(shares)].round, client, shares[row, column]))
    return np.array(cells, dtype=np.float64).reshape(-1, 4)
