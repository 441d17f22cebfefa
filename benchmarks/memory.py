"""Peak memory of a client's round over that of plain training, by store: processes of their own, VmHWM."""

from collections.abc import Iterator

from benchmarks import long_round
from benchmarks.rows import Row, at_most, environment, probe

MODELS = {"resnet18": (40, 11_181_642), "lenet": (160, 61_706)}
SHARES = {"dense": 1.1, "bf16": 0.55, "int8": 0.30}
"""Of T d 4 bytes: all, half and about a quarter, with the recorder's own copy of the parameters."""

ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072"}
"""Large tensors are given back when they are freed, on both sides: the peak is then what is held, to a few 100 kB."""


def peak_of(model: str, T: int, store: str) -> int:
    return int(probe("memory_probe", model, T, store, variables={**environment(), **ALLOCATOR}))


def rows(quick: bool) -> Iterator[Row]:
    yield from stores(quick)
    yield from long_round.rows(quick)


def stores(quick: bool) -> Iterator[Row]:
    for model, (T, d) in MODELS.items():
        if quick and model == "resnet18":
            continue
        plain = peak_of(model, T, "none")
        for store in ("dense", "bf16", "int8", "disk", "replay"):
            extra = peak_of(model, T, store) - plain
            if store in SHARES:
                limit, what = SHARES[store] * T * d * 4, f"{SHARES[store]:g} T d 4 bytes"
            else:
                limit, what = 3 * d * 4 + 50e6, "3 d 4 bytes + 50 MB"
            name = f"memory: {store} over plain / ({what}), {model}, T = {T}"
            yield at_most(
                name, extra / limit, 1.0, f"{extra / 1e6:.0f} MB over plain; T d 4 bytes: {T * d * 4 / 1e6:.0f} MB"
            )
