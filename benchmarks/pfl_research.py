"""The same work in pfl-research, in one process and in turn; it is installed for this comparison only."""

from collections.abc import Iterator
from statistics import median

from benchmarks.environments import PFL, Unavailable
from benchmarks.rows import Row, at_most, median_ratio, not_measured, probe

CASES = {(10, 6000): (1.1, 2), (200, 300): (1.1, 2)}
"""Clients and samples of each: the most that this simulator may take of pfl's time, and the rounds compared."""


def rows(quick: bool) -> Iterator[Row]:
    for (clients, samples), (limit, rounds) in CASES.items():
        name = f"pfl: seconds per round / pfl-research, {clients} clients of {samples:,} samples"
        try:
            found = probe("pfl_probe", clients // 5 if quick else clients, samples, rounds, python=PFL.python())
        except (Unavailable, RuntimeError) as error:
            yield not_measured(name, limit, "at most", str(error))
            continue
        ours, theirs = found["ours"], found["pfl"]
        note = f"{median(ours):.2f} s against {median(theirs):.2f} s of processor time; one process"
        yield at_most(name, median_ratio(ours, theirs), limit, note)
