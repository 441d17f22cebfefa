"""Random sets of local steps of every awkward kind, from a seed."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Steps = NDArray[np.float64]
Kind = Callable[[np.random.Generator, int, int], Steps]


def _normal(rng: np.random.Generator, T: int, d: int) -> Steps:
    return rng.standard_normal((T, d))


def _drift(rng: np.random.Generator, T: int, d: int) -> Steps:
    """A common direction under noise, as training gives: every pair of steps is correlated."""
    return rng.standard_normal(d) + 0.5 * rng.standard_normal((T, d))


def _integers(rng: np.random.Generator, T: int, d: int) -> Steps:
    """Small whole numbers: many exact ties, and every inner product is exact in float64."""
    return rng.integers(-3, 4, size=(T, d)).astype(np.float64)


def _zeros(rng: np.random.Generator, T: int, d: int) -> Steps:
    return _integers(rng, T, d) * (rng.random((T, 1)) < 0.5)


def _repeated(of: Kind) -> Kind:
    return lambda rng, T, d: of(rng, 3, d)[rng.integers(0, 3, size=T)]


def _cancelling(of: Kind) -> Kind:
    """Pairs of a step and its opposite (and, for an odd T, one more), shuffled."""

    def steps(rng: np.random.Generator, T: int, d: int) -> Steps:
        pairs = of(rng, (T + 1) // 2, d)
        return rng.permutation(np.concatenate([pairs, -pairs])[:T], axis=0)

    return steps


def _scales(rng: np.random.Generator, T: int, d: int) -> Steps:
    """Lengths over twelve orders of magnitude."""
    scales: Steps = _normal(rng, T, d) * 10.0 ** rng.uniform(-6, 6, size=(T, 1))
    return scales


GENERIC: dict[str, Kind] = {"normal": _normal, "drift": _drift}
"""No two candidates are ever equally good: the choice is unique."""

EXACT: dict[str, Kind] = {
    "integers": _integers,
    "zeros": _zeros,
    "repeated integers": _repeated(_integers),
    "cancelling integers": _cancelling(_integers),
}
"""Ties are exact in both computations: the lowest index has to win."""

ROUNDED: dict[str, Kind] = {"repeated": _repeated(_normal), "cancelling": _cancelling(_normal), "scales": _scales}
"""Ties up to rounding: any of the equally good choices is right."""

ALL: dict[str, Kind] = {**GENERIC, **EXACT, **ROUNDED}

seeds = st.integers(0, 2**32 - 1)


def make(kind: str, seed: int, T: int, d: int) -> Steps:
    """The set of this kind and seed."""
    return ALL[kind](np.random.default_rng(seed), T, d)
