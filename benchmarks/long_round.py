"""A round of very many steps: ECGR's seconds and peak memory, where T x T inner products outweigh all else."""

from collections.abc import Iterator

from benchmarks.rows import Row, at_most, probe

T, D = 20_000, 1_000


def rows(quick: bool) -> Iterator[Row]:
    if quick:
        return
    found = probe("long_round_probe", T, D)
    where = f"T = {T:,}, d = {D:,}"
    matrix = 8 * T * T
    note = f"{found['peak'] / 1e9:.2f} GB, of which the inner products of all steps are {matrix / 1e9:.1f}"
    yield at_most(f"memory: peak of ECGR's process / 4 GB, {where}", found["peak"] / 4e9, 1.0, note)
    yield at_most(f"memory: seconds of ECGR / 60, {where}", found["seconds"] / 60, 1.0, f"{found['seconds']:.0f} s")
