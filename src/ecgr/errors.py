"""Everything that ecgr raises on purpose, each with the exit code the command line gives it.

::

    EcgrError                 something a person can mend
    ├── ConfigError        2  usage or configuration: a key, a name, a value, a combination
    ├── RecordingError     2  a training loop whose steps cannot be recorded rightly
    ├── DataError          3  a data set that is missing, damaged or not what it says
    ├── IntegrityError     4  a file that was altered, or input that would be unsafe to read
    ├── EnvironmentFault   5  disk, lock, port, worker process: the machine, not the experiment
    └── QuorumLost         6  no usable update is left to aggregate
        └── Diverged       6  nor would be, if it were tried again

The message is one line per problem: what, where, what is allowed, what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class EcgrError(Exception):
    """Base of every error with a known cause."""

    exit_code: ClassVar[int] = 1


class ConfigError(EcgrError, ValueError):
    """A setting that cannot be used; carries every problem found, not only the first.

    >>> ConfigError("regulator.beta: 1.5 is above 1", "run.seed: -1 is below 0").problems
    ('regulator.beta: 1.5 is above 1', 'run.seed: -1 is below 0')
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class RecordingError(EcgrError, RuntimeError):
    """A training loop whose steps were not, or cannot be, recorded rightly: what happened, and what to do."""

    exit_code = 2


class NotFiniteWarning(RuntimeWarning):
    """Training diverged: an update holds NaN or infinite values."""


class DataError(EcgrError):
    """A data set that is missing, damaged or not what it says."""

    exit_code = 3


class IntegrityError(EcgrError):
    """A file that was altered, or input that would be unsafe to read."""

    exit_code = 4


class EnvironmentFault(EcgrError):
    """The machine refuses: disk full, directory locked, worker process gone."""

    exit_code = 5


class QuorumLost(EcgrError):
    """No usable client update is left to aggregate."""

    exit_code = 6


class Diverged(QuorumLost):
    """Training diverged: the same run would end so again."""


def one_line(error: BaseException) -> str:
    """What kind of error it is, and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


@contextmanager
def refused(what: str, advice: str = "") -> Iterator[None]:
    """Any failure in this block is one line: ``what``, why, and ``advice``; ours stay as they are.

    >>> with refused("loss: cannot be computed", "; give another"):
    ...     1 / 0
    Traceback (most recent call last):
    ecgr.errors.ConfigError: loss: cannot be computed (ZeroDivisionError: division by zero); give another
    """
    try:
        yield
    except EcgrError:
        raise
    except Exception as error:
        raise ConfigError(f"{what} ({one_line(error)}){advice}") from None


def with_code(exit_code: int, *lines: str) -> EcgrError:
    """An error of the kind that has this exit code, with one line per problem.

    >>> with_code(6, "a failed", "b failed")
    QuorumLost('a failed\\nb failed')
    """
    kind = next((kind for kind in EcgrError.__subclasses__() if kind.exit_code == exit_code), EcgrError)
    return kind("\n".join(lines))


def missing_extra(what: str, extra: str) -> EnvironmentFault:
    """The error where something needs packages of an extra: what to install is true for a clone, a wheel and an index.

    >>> print(missing_extra("reading pictures", "data"))
    reading pictures needs packages of the extra 'data': pip install 'pandas>=2.2' 'pillow>=11' 'pooch>=1.8'
    """
    return EnvironmentFault(f"{what} needs packages of the extra {extra!r}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """What installs the packages of an extra, wherever this package came from."""
    import re
    from importlib.metadata import PackageNotFoundError, requires  # slow to import, and only needed to complain

    try:
        every = requires("ecgr") or []
    except PackageNotFoundError:
        every = []
    wanted = [line.partition(";")[0].strip() for line in every if re.search(rf"extra == .{extra}\W", line)]
    return "pip install " + " ".join(f"'{package}'" for package in wanted or [f"ecgr[{extra}]"])
