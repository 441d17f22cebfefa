"""Examples in docstrings as the site shows them: code, not prose."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^(?P<indent>[ \t]*)>>> .*(?:\n(?![ \t]*$).*)*")


def fence(text: str) -> str:
    """``text`` with every example between fences.

    >>> fence("Say so:" + chr(10) + ">>> 1 + 1" + chr(10) + "2").splitlines()[1::3]
    ['```pycon', '```']
    """
    return EXAMPLE.sub(lambda found: f"{found['indent']}```pycon\n{found.group()}\n{found['indent']}```", text)


class Doctests(griffe.Extension):
    """Fences the examples of every docstring that is shown."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
