"""Names as they may be shown: control characters made visible, so that no name can bend what surrounds it."""

import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(value: Any) -> Any:
    """``value`` with the control characters of every text made visible, so that no name can bend the page.

    >>> visible({"name": "a\\u202eb"})
    {'name': 'a\\\\u202eb'}
    """
    if isinstance(value, str):
        return _CONTROL.sub(lambda match: repr(match.group())[1:-1], value)
    if is_dataclass(value) and not isinstance(value, type):
        return visible(asdict(value))
    if isinstance(value, Mapping):
        return {visible(key): visible(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible(entry) for entry in value]
    return value
