"""One measured number with its threshold, and how to measure two things side by side."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Row:
    """A claim, what was measured, and the bound; ``value`` is None where it could not be measured."""

    name: str
    value: float | None
    limit: float | None = None
    bound: str = "at most"
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the bound holds; None where there is no bound or nothing was measured."""
        if self.value is None or self.limit is None:
            return None
        return self.value <= self.limit if self.bound == "at most" else self.value >= self.limit

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def at_most(name: str, value: float, limit: float, note: str = "") -> Row:
    return Row(name, value, limit, "at most", note)


def at_least(name: str, value: float, limit: float, note: str = "") -> Row:
    return Row(name, value, limit, "at least", note)


def shown(name: str, value: float, note: str = "") -> Row:
    """A number without a bound, beside one that has it."""
    return Row(name, value, note=note)


def not_measured(name: str, limit: float, bound: str, reason: str) -> Row:
    return Row(name, None, limit, bound, f"not measured: {reason}")


def skipped(name: str, reason: str) -> Row:
    """What needs something that need not be there: not measured, and no failure."""
    return Row(name, None, note=f"not measured: {reason}")


def missed(value: float, goal: float, bound: str, reason: str) -> str:
    """For a row's note: the goal that was set and is not reached, and why; nothing where it is.

    >>> missed(9.7, 12.0, "at least", "that would be 2.8 s a round")
    '; goal: at least 12, not reached: that would be 2.8 s a round'
    """
    reached = value >= goal if bound == "at least" else value <= goal
    return "" if reached else f"; goal: {bound} {goal:g}, not reached: {reason}"


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(repetitions: int, *works: Callable[[], Any]) -> list[list[float]]:
    """Seconds of each work, measured in turn, so that a busy moment of the machine meets all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions):
        for own, work in zip(times, works, strict=True):
            own.append(seconds(work))
    return times


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median over the repetitions of the ratio within each."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def best_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Of the fastest repetition of each: for work of more processes than cores, which others on the machine stretch."""
    return min(numerators) / min(denominators)


def processor_seconds_of_children() -> float:
    """Of all child processes that have ended, with theirs; what one took is the difference of two calls."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment() -> dict[str, str]:
    """For child processes: one thread each, as workers have."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def probe(
    module: str, *arguments: object, python: str = sys.executable, variables: dict[str, str] | None = None
) -> Any:
    """What a module of this folder prints last, run in a process of its own."""
    command = [python, "-m", f"benchmarks.{module}", *map(str, arguments)]
    own = environment() if variables is None else variables
    done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it failed"]
        raise RuntimeError(f"{module}: {said[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def number(value: float | None) -> str:
    """Four significant digits.

    >>> number(35.0), number(0.99999), number(1.2e-7), number(None)
    ('35', '1.0000', '1.2e-07', '-')
    """
    if value is None:
        return "-"
    return f"{value:.4f}" if 0.9 <= value < 1.5 and value != 1 else f"{value:.4g}"
