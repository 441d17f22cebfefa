"""Peak memory of a client's round over that of plain training, by store: processes of their own, VmHWM."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

from benchmarks.rows import Row, at_most, environment, probe

MODELS = {"resnet18": (40, 11_181_642), "lenet": (160, 61_706)}
SHARES = {"dense": 1.1, "int8": 0.325}
"""Of T d 4 bytes: all, and about a quarter, and three vectors of d numbers at the T = 40 of the larger model: the
recorder's copy of the parameters, a displacement, and one that plain training does without as its step is in place."""

STORES = (*SHARES, "disk")
AT_A_TIME = 2
"""Processes: nothing is timed here that another one could disturb, but for a bound that is far away."""

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""Large tensors are given back when they are freed, on both sides: the peak is then what is held, to a few 100 kB."""


def peak_of(model: str, T: int, store: str) -> int:
    return int(probe("memory_probe", model, T, store, variables={**environment(), **ALLOCATOR}))


def rows(quick: bool) -> Iterator[Row]:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        long = pool.submit(list, () if quick else long_round())  # the longest first
        yield from stores(quick, pool)
        yield from long.result()


def long_round(T: int = 20_000, d: int = 1_000) -> Iterator[Row]:
    """ECGR's seconds and peak memory in a round of very many steps, whose T x T inner products outweigh all else."""
    found = probe("long_round_probe", T, d)
    where = f"T = {T:,}, d = {d:,}"
    note = f"{found['peak'] / 1e9:.2f} GB, of which the inner products of all steps are {8 * T * T / 1e9:.1f}"
    yield at_most(f"memory: peak of ECGR's process / 4 GB, {where}", found["peak"] / 4e9, 1.0, note)
    yield at_most(f"memory: seconds of ECGR / 60, {where}", found["seconds"] / 60, 1.0, f"{found['seconds']:.0f} s")


def stores(quick: bool, pool: Executor) -> Iterator[Row]:
    models = {model: size for model, size in MODELS.items() if not (quick and model == "resnet18")}
    peaks = {
        (model, store): pool.submit(peak_of, model, T, store)
        for model, (T, _) in models.items()
        for store in ("none", *STORES)
    }
    for model, (T, d) in models.items():
        for store in STORES:
            extra = peaks[model, store].result() - peaks[model, "none"].result()
            if store in SHARES:
                limit, what = SHARES[store] * T * d * 4, f"{SHARES[store]:g} T d 4 bytes"
            else:
                limit, what = 3 * d * 4 + 50e6, "3 d 4 bytes + 50 MB"
            name = f"memory: {store} over plain / ({what}), {model}, T = {T}"
            yield at_most(
                name, extra / limit, 1.0, f"{extra / 1e6:.0f} MB over plain; T d 4 bytes: {T * d * 4 / 1e6:.0f} MB"
            )
