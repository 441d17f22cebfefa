"""What recording and regulation cost: their time as a share of a client's round, and whole rounds beside it.

The share is one of processor time (one thread, so the same as of time on a quiet machine), which other processes on the
machine do not disturb; whole rounds are timed by the clock.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from benchmarks.problems import one_job, problem
from benchmarks.rows import Row, at_most, interleaved, median_ratio, missed, shown
from ecgr.core.recorder import Recorder, Steps
from ecgr.core.stores import DenseStore
from ecgr.simulation.client import train_client
from ecgr.simulation.workspace import Workspace

CASES = (("lenet", 47, 0.036), ("lenet", 185, 0.045), ("cnn", 20, 0.009))
"""Model, T, and a share of the round that a regression of a fifth would pass."""
SMALL_BATCHES = {(4, 47): 0.235, (4, 185): 0.27, (4, 470): 0.5, (16, 47): 0.165, (16, 185): 0.175}
"""Batch, T, and a share of the steps that is missed by a regression of a fifth; seven runs differ by a seventh.

Of T = 470 more than half is the product of all steps, whose speed differs most between kinds of processors (with and
without bfloat16 instructions): 0.30 was measured on one and 0.43 on another, and the bound is a seventh above the most.
"""
GOALS = {4: 0.08, 16: 0.05}
"""By the size of a batch: the share of the steps that was aimed at."""
INSIDE = {Recorder: ("__enter__", "_before_step", "_after_step", "__exit__"), Steps: ("regulated",)}


@contextmanager
def stopwatch(inside: Mapping[Any, Sequence[str]] = INSIDE) -> Iterator[list[float]]:
    """Collects the seconds of processor time spent inside these functions of classes or modules."""
    spent: list[float] = []
    originals = {(owner, name): getattr(owner, name) for owner, names in inside.items() for name in names}

    def timed(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                spent.append(time.process_time() - began)

        return call

    for (owner, name), original in originals.items():
        setattr(owner, name, timed(original))
    try:
        yield spent
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)


def rows(quick: bool) -> Iterator[Row]:
    for model, T, limit in CASES:
        if quick and model == "cnn":
            continue
        spaces = {
            regulator: Workspace(problem(model, samples=128 * T, regulator__name=regulator))
            for regulator in ("none", "ecgr")
        }
        job = one_job(spaces["ecgr"].problem)
        shares: list[float] = []

        def regulated(job: Any = job, space: Workspace = spaces["ecgr"], shares: list[float] = shares) -> None:
            with stopwatch() as spent:
                began = time.process_time()
                train_client(job, space)
                shares.append(sum(spent) / (time.process_time() - began))

        def plain(job: Any = job, space: Workspace = spaces["none"]) -> None:
            train_client(job, space)

        where = f"{model}, T = {T}"
        share = f"overhead: recording and regulation, share of the round, {where}"
        if model == "cnn":  # whose rounds are long, and whose share is far below what tells two of them apart
            short = Workspace(problem(model, samples=T, batch_size=1))  # as many steps, so that their memory is there
            train_client(one_job(short.problem), short)
            regulated()
            regulated()
            yield at_most(share, median(shares), limit)
            continue
        regulated()
        plain()
        shares.clear()
        with_it, without = interleaved(3, regulated, plain)
        yield at_most(share, median(shares), limit)
        yield shown(f"overhead: whole rounds, ecgr / none, {where}", median_ratio(with_it, without))
    yield from small_batches(quick)


def small_batches(quick: bool) -> Iterator[Row]:
    """Against a client's own steps, which small batches make cheap, as those of the study are.

    The goals are below what can be had: a matrix of inner products takes T² d / 2 multiply-adds at the speed of the
    processor's matrix products, and with T = 470 that alone is more than a tenth of the steps.
    """
    for (batch, T), limit in list(SMALL_BATCHES.items())[: 1 if quick else None]:
        space = Workspace(problem("lenet", samples=batch * T, batch_size=batch))
        job = one_job(space.problem)
        train_client(job, space)
        shares, products = [], []
        for _ in range(5):
            with stopwatch() as spent, stopwatch({DenseStore: ("gram",)}) as inner:
                began = time.process_time()
                train_client(job, space)
                steps = time.process_time() - began - sum(spent)
            shares.append(sum(spent) / steps)
            products.append(sum(inner) / steps)
        name = f"overhead: recording and regulation, share of the steps, lenet, batches of {batch}, T = {T}"
        share, inner_share = median(shares), median(products)
        reason = "the inner products alone" if inner_share > GOALS[batch] else "a copy of every step, and their sum"
        note = f"{inner_share:.3f} of it for the inner products" + missed(share, GOALS[batch], "at most", reason)
        yield at_most(name, share, limit, note)
