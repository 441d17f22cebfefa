"""Small models: a round's processor time beside fedjax's, and a comparison's beside that of an earlier commit."""

import subprocess
from collections.abc import Iterator
from statistics import median

from benchmarks.before import CASES, measured
from benchmarks.environments import FEDJAX, Unavailable
from benchmarks.rows import Row, at_most, environment, median_ratio, not_measured, probe, shown, skipped

PROBLEMS = {"logistic": "logistic, four clients", "mlp": "13-16-1, four clients", "demo": "the demo's MLP, ten clients"}
LIMIT, ROUNDS = 0.8, 60
EARLIER = {"demo": 0.45, "heart disease": 0.5}
"""The most that a comparison may take of an earlier commit's processor time."""
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def rows(quick: bool) -> Iterator[Row]:
    yield from _rounds(12 if quick else ROUNDS)
    if quick:
        return
    for name, limit in EARLIER.items():
        claim = f"small: processor time of a comparison / commit {CASES[name].commit}, {name}"
        try:
            (before, now), *_ = measured(CASES[name], 1)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode().strip().splitlines() or ["it failed"]
            absent = "not a tree object" in said[-1] or "not a valid object" in said[-1] or "ECGR_DATA" in said[-1]
            yield skipped(claim, said[-1]) if absent else not_measured(claim, limit, "at most", said[-1])
            continue
        yield at_most(claim, now / before, limit, f"{now:.1f} s against {before:.1f} s, from the command to the page")


def _rounds(rounds: int) -> Iterator[Row]:
    for name, words in PROBLEMS.items():
        claim = f"small: processor time per round / fedjax, {words}"
        try:
            python = FEDJAX.python()
            variables = {**environment(), "XLA_FLAGS": ONE_THREAD}
            found = probe("fedjax_probe", name, rounds, python=python, variables=variables)
        except (Unavailable, RuntimeError) as error:
            yield not_measured(claim, LIMIT, "at most", str(error))
            continue
        ours, theirs = found["ours"], found["fedjax"]
        note = f"{1e3 * median(ours):.1f} ms against {1e3 * median(theirs):.1f} ms; one thread, evaluation included"
        yield at_most(claim, median_ratio(ours, theirs), LIMIT, note)
        first = found["first"]
        note = f"of the first two rounds, in which fedjax compiles; ours {first['ours']:.2f} s"
        yield shown(f"small: seconds of fedjax's compilation, {words}", first["fedjax"], note)
