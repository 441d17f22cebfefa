"""How heterogeneous clients are: three numbers, each with a word for its scale and what helps.

All are means over clients, weighted by size, from counts and sums: whoever has no samples can compute them too.

- Label skew: the total variation distance of a client's label distribution to everybody's, 0 to 1.
- Size inequality: the Gini coefficient of the clients' sizes, 0 (equal) to 1.
- Feature shift: the distance of a client's mean to everybody's, in standard deviations, averaged over features.

Small clients differ by chance: what a random partition into clients of the same sizes would have is told beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CHANCE = 1.25
"""Up to this many times what a random partition has is no difference between clients."""
LABELS, SIZES, FEATURES = "label skew", "size inequality", "feature shift"
SCALES = {
    LABELS: (0.3, 0.6, "server momentum (fedavgm), drift_correction, an LDA head (fedavg@lda)"),
    SIZES: (0.2, 0.5, "fednova where clients take different numbers of steps; look at the worst client"),
    FEATURES: (0.2, 0.5, "norm layers that stay at the client (fedavg+local(part=norm)), fine-tuning (+finetune)"),
}
"""Where moderate begins, where strong does, and what helps then."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number; ``chance`` is what a random partition of the same sizes has, None where that says nothing."""

    name: str
    value: float
    chance: float | None = None

    @property
    def scale(self) -> str:
        moderate, strong, _ = SCALES[self.name]
        if self.chance is not None and self.value <= CHANCE * self.chance:
            return "as by chance"
        return "strong" if self.value >= strong else "moderate" if self.value >= moderate else "mild"

    @property
    def helps(self) -> str:
        return SCALES[self.name][2] if self.scale in {"moderate", "strong"} else "a tuned FedAvg"

    @property
    def sentence(self) -> str:
        """
        >>> Measure("size inequality", 0.1).sentence
        'size inequality 0.10, mild: a tuned FedAvg'
        """
        chance = "" if self.chance is None else f" ({self.chance:.2f} by chance)"
        return f"{self.name} {self.value:.2f}{chance}, {self.scale}: {self.helps}"


def of_counts(counts: Sequence[Sequence[int]] | NDArray[Any]) -> list[Measure]:
    """Label skew and size inequality from samples by client and class; a single class says nothing of labels.

    >>> [round(measure.value, 2) for measure in of_counts([[30, 0], [0, 10]])]
    [0.38, 0.25]
    """
    table = np.asarray(counts, dtype=np.float64)
    table = table[table.sum(axis=1) > 0]
    sizes = table.sum(axis=1)
    if len(table) < 2:
        return []
    found = [Measure(SIZES, gini(sizes))]
    if table.shape[1] > 1:
        pooled = table.sum(axis=0) / sizes.sum()
        distances = np.abs(table / sizes[:, None] - pooled).sum(axis=1) / 2
        by_chance = np.sqrt(pooled * (1 - pooled)).sum() / 2 * _deviation(sizes)
        found.insert(0, Measure(LABELS, _mean(distances, sizes), _mean(by_chance, sizes)))
    return found


def of_sums(sizes: Sequence[int] | Floats, sums: Floats, squares: Floats) -> list[Measure]:
    """Feature shift from the clients' sizes, sums of features (clients, features), and everybody's sum of squares."""
    sizes = np.asarray(sizes, dtype=np.float64)
    sums, sizes = sums[sizes > 0], sizes[sizes > 0]
    mean = sums.sum(axis=0) / sizes.sum()
    variance = squares / sizes.sum() - mean**2
    varied = variance > 1e-12 * (1 + mean**2)
    if len(sizes) < 2 or not varied.any():
        return []
    shifts = (np.abs(sums / sizes[:, None] - mean)[:, varied] / np.sqrt(variance[varied])).mean(axis=1)
    return [Measure(FEATURES, _mean(shifts, sizes), _mean(_deviation(sizes), sizes))]


def gini(sizes: Floats) -> float:
    """The Gini coefficient.

    >>> round(gini(np.array([1.0, 1.0, 1.0, 1.0])), 6), gini(np.array([0.0, 0.0, 0.0, 8.0]))
    (0.0, 0.75)
    """
    ranked, count = np.sort(sizes), len(sizes)
    return float((2 * np.arange(1, count + 1) - count - 1) @ ranked / (count * ranked.sum()))


def _mean(values: Floats, sizes: Floats) -> float:
    return float(np.average(values, weights=sizes))


def _deviation(sizes: Floats) -> Floats:
    """The mean absolute deviation of the mean of a draw without replacement, in standard deviations of one sample."""
    total = sizes.sum()
    deviation: Floats = np.sqrt(2 / (pi * sizes) * (total - sizes) / max(total - 1, 1))
    return deviation
