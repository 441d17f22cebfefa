"""What somebody's own code is called, and a hash that changes when it does."""

import inspect
from contextlib import suppress
from hashlib import sha256
from types import CodeType
from typing import Any

NOTED = "__ecgr_source__"


def qualified_name(kind: Any) -> str:
    """Where a class or function is defined, in characters that a file's name may have."""
    return f"{getattr(kind, '__module__', None)}.{kind.__qualname__}".replace("<locals>.", "").replace(
        "<lambda>", "lambda"
    )


def source_hash(kind: Any) -> str | None:
    """A short hash of the source of a class or function; None where Python cannot find it.

    It is noted down at the class itself: in a worker process, where it comes without its file, it has the same one.
    """
    noted: str | None = vars(kind).get(NOTED) if hasattr(kind, "__dict__") else None
    if noted is not None:
        return noted
    try:
        found = sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # from standard input, or not written in Python
        members = sorted(vars(kind).items()) if inspect.isclass(kind) else [("", kind)]
        codes = [(name, member.__code__) for name, member in members if hasattr(member, "__code__")]
        if not codes:
            return None
        found = sha256(repr([(name, _instructions(code)) for name, code in codes]).encode()).hexdigest()[:16]
    with suppress(AttributeError, TypeError):  # built-in functions take no note
        setattr(kind, NOTED, found)
    return found


def _instructions(code: CodeType) -> list[Any]:
    """What a function does, as values whose text is the same in every process."""
    constants = [_instructions(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return [code.co_code, code.co_names, constants]
