"""The two drawings of the README: client drift, and what regulation does to a client's steps. Both are computed.

python docs/guide/pictures.py
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecgr.core.geometry import Geometry
from ecgr.core.regulators import ECGR

IMAGES = Path(__file__).parent / "images"
PLAIN, KEPT, DAMPED, RESULT, SECOND = "#555555", "#1b7837", "#b8b8b8", "#b2182b", "#2166ac"
CLIENTS = ((SECOND, "client A"), (KEPT, "client B"))
TITLE = "Client drift: non-IID clients drift apart,\nand their average misses"
STAGES = (
    "1  record the steps",
    "2  keep the half whose sum stays\nshortest, damp the others",
    "3  restore the length",
)
Points = NDArray[np.float64]


def drift(axes: Axes) -> None:
    """Two clients whose losses have their minima apart: each walks to its own, the average is not the joint minimum."""
    centres = np.array([[-2.0, 0.6], [2.2, 0.9]])
    curvatures = np.array([np.diag([0.25, 1.6]), np.array([[1.5, 0.9], [0.9, 0.8]])])
    start = np.array([0.2, -2.2])
    joint = np.linalg.solve(curvatures.sum(0), np.einsum("nij,nj->i", curvatures, centres))
    ends = []
    for centre, curvature, colour, name in zip(
        centres, curvatures, (SECOND, KEPT), ("client A", "client B"), strict=True
    ):
        path = [start]
        for _ in range(60):
            path.append(path[-1] - 0.12 * curvature @ (path[-1] - centre))
        walked = np.array(path)
        _rings(axes, centre, curvature, colour)
        axes.plot(*walked.T, color=colour, lw=2.2)
        axes.plot(*walked[-1], "o", color=colour, ms=6)
        axes.annotate(name, walked[-1], (11, -6), textcoords="offset points", color=colour)
        ends.append(walked[-1])
    mean = np.mean(ends, axis=0)
    axes.plot(*np.array(ends).T, ":", color=PLAIN, lw=1)
    axes.plot(*start, "s", color=PLAIN, ms=6)
    axes.annotate("the server's model", start, (9, -4), textcoords="offset points", color=PLAIN)
    axes.plot(*mean, "D", color=RESULT, ms=7)
    axes.annotate("their average", mean, (10, -18), textcoords="offset points", color=RESULT, ha="center")
    axes.plot(*joint, "*", color="black", ms=13)
    axes.annotate("best for both", joint, (0, 11), textcoords="offset points", ha="center")
    axes.set(
        xlim=(-3.4, 3.6), ylim=(-2.7, 2.2), title="Client drift: non-IID clients drift apart,\nand their average misses"
    )


def _rings(axes: Axes, centre: Points, curvature: Points, colour: str) -> None:
    angles = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    for level in (0.35, 0.8, 1.4):
        ring = centre[:, None] + level * np.linalg.inv(np.linalg.cholesky(curvature)).T @ circle
        axes.plot(*ring, color=colour, lw=0.6, alpha=0.45)


def method(axes: Any) -> None:
    """A client's steps end to end, the half that ECGR keeps, and what becomes of the others."""
    rng = np.random.default_rng(5)
    steps = np.array([0.45, 0.2]) + rng.normal(scale=0.75, size=(10, 2))
    found = ECGR(beta=0.2)(Geometry(gram=torch.from_numpy(steps @ steps.T)))
    kept, weights = set(found.kept), found.weights.numpy()
    damped = steps * weights[:, None]
    plain, restored = steps.sum(0), found.coefficients.numpy() @ steps
    _walk(axes[0], steps, [PLAIN] * len(steps))
    _arrow(axes[0], np.zeros(2), plain, PLAIN, width=0.012)
    axes[0].annotate("plain update", plain, (4, -19), textcoords="offset points", color=PLAIN, ha="right")
    order = [*sorted(kept), *(i for i in range(len(steps)) if i not in kept)]
    _walk(axes[1], damped[order], [KEPT if i in kept else DAMPED for i in order])
    _arrow(axes[1], np.zeros(2), damped.sum(0), RESULT, width=0.012)
    _arrow(axes[2], np.zeros(2), plain, PLAIN, width=0.01)
    _arrow(axes[2], np.zeros(2), restored, RESULT, width=0.012)
    turn = np.linspace(np.arctan2(*plain[::-1]), np.arctan2(*restored[::-1]), 50)
    axes[2].plot(np.linalg.norm(plain) * np.cos(turn), np.linalg.norm(plain) * np.sin(turn), ":", color=PLAIN, lw=1)
    axes[2].annotate("uploaded", restored, (-14, 4), textcoords="offset points", color=RESULT, ha="right")
    places = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, 0), np.cumsum(damped[order], 0), restored[None]])
    low, high = places.min(0) - 0.5, places.max(0) + 0.5
    for panel, title in zip(axes, STAGES, strict=True):
        panel.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), title=title)


def _walk(axes: Axes, steps: Points, colours: list[str]) -> None:
    place = np.zeros(2)
    for step, colour in zip(steps, colours, strict=True):
        _arrow(axes, place, step, colour, width=0.008)
        place = place + step


def _arrow(axes: Axes, place: Points, step: Points, colour: str, width: float) -> None:
    axes.quiver(*place, *step, color=colour, angles="xy", scale_units="xy", scale=1, width=width, headwidth=4.5)


def write(directory: Path = IMAGES) -> list[Path]:
    """Draw both."""
    pictures = []
    for name, size, panels, draw in (("drift", (4.6, 3.5), 1, drift), ("method", (9.2, 3.4), 3, method)):
        figure = Figure(figsize=size, dpi=150, layout="constrained")
        axes = figure.subplots(1, panels)
        for panel in np.atleast_1d(axes):
            panel.set(xticks=[], yticks=[], aspect="equal")
            panel.spines[:].set_visible(False)
        draw(axes)
        pictures.append(directory / f"{name}.png")
        figure.savefig(pictures[-1], metadata={"Software": None})
    return pictures


if __name__ == "__main__":
    write()
