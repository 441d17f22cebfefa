"""The model that is scored and handed out: the last one, or the average of the recent ones (``run.served``).

Under a constant learning rate the last model jitters around where it is going; the mean of the recent ones does not, so
that every round's score is what one would have had by stopping there. The window is about the last fifth of the rounds
so far, from two running means in O(1) memory: the older one is served; when the newer one has seen a seventh of all
rounds, it takes the older one's place and a new one begins. So the window is a seventh to a quarter of the rounds, and
up to round 7 the last model itself. Buffers are averaged alike, counters are the last ones. Clients never start there.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ecgr.component import State

SHARE = 7
"""A window takes over when it has seen one of this many rounds."""
COUNTS = "counts"
OLDER, NEWER = "older/", "newer/"


def averaged(average: State, rounds: int, model: Mapping[str, Tensor]) -> State:
    """Both running means after round ``rounds``, which led to ``model``; empty is where they begin.

    >>> state = {}
    >>> for rounds in range(1, 18):
    ...     state = averaged(state, rounds, {"w": torch.tensor(float(rounds))})
    >>> state["counts"].tolist(), float(mean_of(state)["w"])
    ([4, 1], 15.5)
    """
    older, newer = average[COUNTS].tolist() if average else (0, 0)
    means = {OLDER: _moved(average, OLDER, older + 1, model), NEWER: _moved(average, NEWER, newer + 1, model)}
    older, newer = older + 1, newer + 1
    if SHARE * newer >= rounds:
        means, older, newer = {OLDER: means[NEWER]}, newer, 0
    flat = {f"{part}{name}": tensor for part, mean in means.items() for name, tensor in mean.items()}
    return {COUNTS: torch.tensor([older, newer]), **flat}


def mean_of(average: State) -> dict[str, Tensor]:
    """The mean that is served."""
    return {name.removeprefix(OLDER): tensor for name, tensor in average.items() if name.startswith(OLDER)}


def _moved(average: State, part: str, count: int, model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A running mean of ``count`` models, of which ``model`` is the last."""
    if count == 1:
        return {name: tensor.clone() for name, tensor in model.items()}
    return {
        name: average[part + name] + (tensor - average[part + name]) / count
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in model.items()
    }
