"""Which of many generated cases belong to the quick loop, and which to the suite; `make nightly` has them all."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def quick_where(
    chosen: Callable[..., bool], cases: Iterable[tuple[Any, ...]], others: pytest.MarkDecorator = pytest.mark.slow
) -> list[Any]:
    """The cases for ``pytest.mark.parametrize``: those that ``chosen`` does not say yes to get the mark ``others``.

    >>> [bool(case.marks) for case in quick_where(lambda name, count: count == 1, [("a", 1), ("b", 2)])]
    [False, True]
    """
    return [pytest.param(*case, marks=() if chosen(*case) else others) for case in cases]


def examples(count: int) -> settings:
    """So many generated examples, where the profile has too few or too many; its own in the quick loop."""
    name = settings.get_current_profile_name()
    return settings(max_examples=settings.get_profile(name).max_examples if name == "quick" else count)
