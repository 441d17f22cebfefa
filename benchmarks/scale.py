"""Many clients, few of whom take part: memory and time follow the participants, not the population."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks import rows as measured
from benchmarks.rows import Row, at_most

SAMPLES_EACH = 30
PARTICIPANTS = 20


def probe(clients: int, samples: int, rounds: int, participants: int) -> dict[str, float]:
    found: dict[str, float] = measured.probe("scale_probe", clients, samples, rounds, participants)
    return found


def rows(quick: bool) -> Iterator[Row]:
    many, rounds = (500, 30) if quick else (2000, 40)
    samples = many * SAMPLES_EACH
    with ThreadPoolExecutor() as pool:  # at the same time, in processes of one thread: a slow minute meets both
        sizes = ((many, samples), (PARTICIPANTS, PARTICIPANTS * SAMPLES_EACH))
        large, few = pool.map(lambda size: probe(*size, rounds, PARTICIPANTS), sizes)
    small = probe(PARTICIPANTS, samples, 1, PARTICIPANTS)
    note = f"{large['peak'] / 1e6:.0f} MB against {small['peak'] / 1e6:.0f} MB; SCAFFOLD, {rounds} rounds"
    yield at_most(
        f"scale: peak memory, {many:,} clients with {PARTICIPANTS} taking part / {PARTICIPANTS} clients",
        large["peak"] / small["peak"],
        1.2,
        note,
    )
    yield at_most(
        f"scale: seconds per round, {many:,} clients with {PARTICIPANTS} taking part / {PARTICIPANTS} clients alike",
        large["seconds"] / few["seconds"],
        1.3,
        f"{large['seconds']:.3f} s against {few['seconds']:.3f} s",
    )


def by_population(quick: bool) -> dict[int, float]:
    """Seconds per round for 10 participants of so many clients, for the figure."""
    sizes = (10, 50, 200, 1000) if quick else (10, 30, 100, 300, 1000, 2000)
    return {n: probe(n, n * SAMPLES_EACH, 10, 10)["seconds"] for n in sizes}


def everyone(quick: bool) -> dict[int, float]:
    """Seconds per round when all of so many clients take part, for the figure."""
    sizes = (10, 50) if quick else (10, 30, 100, 300)
    return {n: probe(n, n * SAMPLES_EACH, 4, n)["seconds"] for n in sizes}
