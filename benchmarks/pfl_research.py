"""The same work in pfl-research, in one process and in turn; it is installed for this comparison only."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.environments import PFL, Unavailable
from benchmarks.rows import Row, at_most, median_ratio, missed, not_measured, probe

CASES = {(10, 6000): 1.1, (200, 300): 1.1}
"""Clients and samples of each: the most that this simulator may take of pfl's time."""
GOAL, ROUNDS = 0.97, 12


def rows(quick: bool) -> Iterator[Row]:
    def measured(size: tuple[int, int]) -> dict[str, list[float]]:
        clients, samples = size
        found: dict[str, list[float]] = probe(
            "pfl_probe", clients // 5 if quick else clients, samples, ROUNDS, python=python
        )
        return found

    try:
        python = PFL.python()
        with ThreadPoolExecutor() as pool:  # by processor time, each in a process of one thread: at the same time
            found = list(pool.map(measured, CASES))
    except (Unavailable, RuntimeError) as error:
        for size, limit in CASES.items():
            yield not_measured(_name(*size), limit, "at most", str(error))
        return
    for (size, limit), times in zip(CASES.items(), found, strict=True):
        ours, theirs = times["ours"], times["pfl"]
        note = f"{median(ours):.2f} s against {median(theirs):.2f} s of processor time; one process"
        ratio = median_ratio(ours, theirs)
        note += missed(ratio, GOAL, "at most", "both spend nearly all of it in torch's own kernels, which are the same")
        yield at_most(_name(*size), ratio, limit, note)


def _name(clients: int, samples: int) -> str:
    return f"pfl: seconds per round / pfl-research, {clients} clients of {samples:,} samples"
