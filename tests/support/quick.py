"""Which of many generated cases belong to the quick loop; the whole suite has them all."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def quick_where(chosen: Callable[..., bool], cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The cases for ``pytest.mark.parametrize``: those that ``chosen`` does not say yes to are slow.

    >>> [bool(case.marks) for case in quick_where(lambda name, count: count == 1, [("a", 1), ("b", 2)])]
    [False, True]
    """
    return [pytest.param(*case, marks=() if chosen(*case) else pytest.mark.slow) for case in cases]


def examples(count: int) -> settings:
    """So many generated examples; in the quick loop as few as any other test has."""
    name = settings.get_current_profile_name()
    return settings(max_examples=settings.get_profile(name).max_examples if name == "quick" else count)
