"""Client-level privacy: "Learning Differentially Private Recurrent Language Models" (McMahan et al., 2018).

Every update is clipped, whole clients are drawn by chance, and the server adds Gaussian noise to their sum before
anything else sees it. What is then done with the noised mean (server rules, averages, tests) costs nothing more.
The clip may follow a quantile: "Differentially Private Learning with Adaptive Clipping" (Andrew et al., 2021).
"""

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from math import exp, inf
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ecgr.algorithms import ALGORITHMS, SERVER_RULES
from ecgr.algorithms.base import Plan, Trace
from ecgr.algorithms.corrections import FedCM, FedDyn, FedNova, Scaffold
from ecgr.algorithms.named import Composed, compose
from ecgr.algorithms.server_rules import Extrapolation, NormUnion
from ecgr.component import NonNegative, Tensor, component, torch
from ecgr.errors import missing_extra

LEAKS: Mapping[type, str] = {
    Scaffold: "control variates, which follow the updates of single clients",
    FedDyn: "duals, which add up the updates of single clients",
    FedNova: "each client's number of steps, by which its update is stretched beyond the clip",
    FedCM: "each client's number of steps",
    Extrapolation: "the lengths of single clients' updates",
    NormUnion: "the lengths of single clients' updates",
}
"""What methods use of single clients besides the noised mean."""
BESIDE = {
    "head": "a head is made of sums over clients' samples, and the head's sums are not noised",
    "local": "with local layers each client is scored by itself, and these scores are not noised",
    "finetune": "after finetune each client is scored by itself, and these scores are not noised",
}
"""Parts that tell of single clients, by section."""
UNLIMITED = 1e300
"""The clip that clips nothing: infinity, which no JSON holds, is taken for it."""
RATE = 0.2
"""By how much a clip that follows a quantile moves, on the log, for each unit that the share below it is off."""


class Numbers(Protocol):
    """Where chance comes from: a seeded generator, or the operating system."""

    def random(self, size: int) -> NDArray[np.float64]: ...
    def standard_normal(self, size: int) -> NDArray[np.float64]: ...


@component
class DP:
    """Clip each client's update to the length ``clip``; add noise of ``noise`` times that to every number of their sum.

    Clients have equal weights, and each takes part in a round with the probability ``federation.participation``. The
    sum is divided by how many do so on average. ``quantile`` has the clip follow that quantile of the updates' lengths,
    from ``clip`` on; epsilon for ``noise`` stays the same, and includes the noise that hides who is below the clip.

    >>> DP(clip=0.5)
    DP(clip=0.5, noise=1.0, quantile=None, delta=1e-05)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"clip": (0.1, 10.0)}
    clip: Annotated[float, Field(gt=0), AfterValidator(lambda clip: min(clip, UNLIMITED))] = 1.0
    noise: NonNegative = 1.0
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    def clash(self, experiment: Any) -> str | None:
        """What else would leave the clients, or why noise cannot be added."""
        if self.clip == UNLIMITED and (self.noise or self.quantile):
            return "dp.clip: infinite; noise is a multiple of the clip, and a quantile starts there; give a finite one"
        if beside := next((why for name, why in BESIDE.items() if name in experiment.parts), None):
            return f"dp: {beside}; leave one of the two out"
        if experiment.data.score != "test":
            return f"dp: with data.score = {experiment.data.score!r} each client's own score is told, without noise"
        algorithm = compose(experiment.correction, experiment.server)
        parts = (algorithm.correction, algorithm.rule) if isinstance(algorithm, Composed) else (algorithm,)
        for part in parts:
            told = next((what for kind, what in LEAKS.items() if isinstance(part, kind)), None) or _unknown(part)
            if told is not None:
                name = ALGORITHMS.name_of(part) or SERVER_RULES.name_of(part) or type(part).__name__
                return (
                    f"dp: {name} also uses {told}; only the mean of the updates gets noise;"
                    " use fedavg or fedprox, with a server rule other than exp and nur"
                )
        if self.noise and find_spec("dp_accounting") is None:
            raise missing_extra("dp, which counts epsilon,", "privacy")
        return None

    def split(self, expected: float) -> tuple[float, float]:
        """The noise of the sum, and of the number of clients below the clip; together they cost what ``noise`` does.

        >>> DP(noise=2.0, quantile=0.5).split(100.0)
        (2.041241452319315, 5.0)
        """
        if self.quantile is None or not self.noise:
            return self.noise, 0.0
        count = max(expected / 20, self.noise)
        return (self.noise**-2 - (2 * count) ** -2) ** -0.5, count


def _unknown(part: Any) -> str | None:
    """What an algorithm of a user sends or keeps beside the update."""
    if not hasattr(part, "finish"):
        return None
    params = torch.zeros(2)
    server, client = part.init_server(params), part.init_client(params)
    state = part.begin(Plan(1, 1.0, 0.0), part.broadcast(server), client)
    _, payload = part.finish(Trace(params, params, 1, 1.0, 0.0), part.broadcast(server), state)
    more = sorted({*payload, *client} - {"update"})
    return f"{', '.join(more)} of single clients" if more else None


def clipped(update: Tensor, most: float) -> Tensor:
    """``u min(1, C / |u|)``; what is short enough stays as it is, to the bit.

    >>> clipped(torch.tensor([3.0, 4.0]), 1.0)
    tensor([0.6000, 0.8000])
    """
    length = float(torch.linalg.vector_norm(update, dtype=torch.float64))
    return update if length <= most else update * (most / length)


def noised_mean(
    updates: Sequence[Tensor], like: Tensor, clip: float, noise: float, expected: float, numbers: Numbers
) -> Tensor:
    """``(sum of clipped updates + N(0, (noise clip)^2)) / expected``, summed in the given order in float64."""
    total = torch.zeros_like(like, dtype=torch.float64)
    for update in updates:
        total.add_(clipped(update.double(), clip))
    if noise:
        total.add_(torch.from_numpy(numbers.standard_normal(total.numel())), alpha=noise * clip)
    return total.div_(expected).to(like.dtype)


def next_clip(dp: DP, clip: float, lengths: Sequence[float], expected: float, numbers: Numbers) -> float:
    """The clip of the next round: ``C exp(-0.2 (share below C - quantile))``, the share by a noised count."""
    if dp.quantile is None:
        return clip
    count = sum((length <= clip) - 0.5 for length in lengths)  # one client moves it by a half
    _, noise = dp.split(expected)
    if noise:
        count += noise * float(numbers.standard_normal(1)[0])
    return clip * exp(-RATE * (count / expected + 0.5 - dp.quantile))


def epsilon(noise: float, sampling: float, rounds: int, delta: float) -> float:
    """Epsilon at ``delta`` of this many rounds, each with clients drawn with the probability ``sampling``.

    By the Rényi accountant of the Poisson-sampled Gaussian mechanism; two neighbours differ in one whole client.
    """
    if not noise:
        return inf
    from dp_accounting.rdp import compute_epsilon  # an extra

    orders, one = _one_round(noise, sampling)
    return float(compute_epsilon(orders, rounds * one, delta)[0])


@cache
def _one_round(noise: float, sampling: float) -> tuple[Any, Any]:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent  # an extra
    from dp_accounting.rdp import RdpAccountant

    log = logging.getLogger("absl")
    level, accountant = log.level, RdpAccountant()
    log.setLevel(logging.ERROR)  # without a line for each order that it leaves out
    try:
        accountant.compose(PoissonSampledDpEvent(sampling, GaussianDpEvent(noise)))
    finally:
        log.setLevel(level)
    return np.array(accountant.orders), np.array(accountant.rdp)
