"""Numbers as a page shows them: short, in percent where they are shares, bytes for people."""

import math
from collections.abc import Iterable
from typing import Any

from ecgr.analysis.quantities import Quantity


def short(value: Any) -> float | None:
    """A number with five digits, or None for what is none.

    >>> short(0.1234567), short(None), short(float("nan"))
    (0.12346, None, None)
    """
    return float(f"{value:.5g}") if is_number(value) else None


def is_number(value: Any) -> bool:
    """Whether a record's value is a finite number."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def shown_as(quantity: Quantity, value: float | None) -> float | None:
    """A value as people read it: shares in percent."""
    return None if value is None else short(100 * value if quantity.is_share else value)


def axis_title(quantity: Quantity) -> str:
    """The primary metric as an axis names it.

    >>> axis_title(Quantity("balanced_accuracy", "share")), axis_title(Quantity("mae", "years", larger_is_better=False))
    ('test balanced accuracy, %', 'test mae, years')
    """
    unit = "%" if quantity.is_share else quantity.unit
    return ", ".join(part for part in (f"test {quantity.name.replace('_', ' ')}", unit) if part)


def join_values(values: Iterable[Any]) -> str:
    """Different values in a row, numbers in order.

    >>> join_values([2, 0, 2, 1]), join_values(["digits", None])
    ('0, 1, 2', 'digits')
    """
    found = [value for value in dict.fromkeys(values) if value is not None and value != ""]
    if all(isinstance(value, (int, float)) for value in found):
        found.sort()
    return ", ".join(map(str, found))


def bytes_text(value: float | None) -> str:
    """Bytes for people.

    >>> bytes_text(2_468_240), bytes_text(512)
    ('2.47 MB', '512 B')
    """
    if value is None:
        return "-"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def format_or_dash(value: float | None, form: str) -> str:
    """A number in the given form, or a dash where there is none."""
    return "-" if value is None else format(value, form)
