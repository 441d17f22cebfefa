"""Tables of named parts (regulators, algorithms, models, …): the package's own entries, and those of other packages.

A package adds an entry by an entry point, as in ``[project.entry-points."ecgr.regulators"]``; it is imported when it
is named, never by looking at the table. A config names entries of tables; it never names an import.
"""

from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ecgr.errors import ConfigError, refused

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

P = TypeVar("P")
OURS = "ecgr"


class Table(UserDict[str, Callable[..., P]]):
    """What can be named, by name.

    >>> table = Table("loss", "losses", {"mse": dict})
    >>> table["mse"], list(table), table.origin("mse")
    (<class 'dict'>, ['mse'], 'ecgr')
    """

    def __init__(self, kind: str, group: str, entries: Mapping[str, Callable[..., P]]) -> None:
        self.kind = kind
        self.group = f"ecgr.{group}"
        super().__init__(entries)

    def __missing__(self, name: str) -> Callable[..., P]:
        if name not in self._offered:
            raise KeyError(name)
        self.data[name] = self._load(name)
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._offered

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self.data, *self._offered]))

    def __len__(self) -> int:
        return len({*self.data, *self._offered})

    def name_of(self, part: object) -> str | None:
        """The name of the entry that ``part`` is an instance of, or is itself; None where it is in no entry."""
        found = next((name for name, entry in self.data.items() if entry is type(part) or entry is part), None)
        if found is not None or type(part).__module__.startswith(f"{OURS}."):
            return found
        # It may have come from another process, and its entry not have been named in this one.
        package = type(part).__module__.partition(".")[0]
        for name, points in self._offered.items():
            with suppress(ConfigError):  # broken, so nothing can be made of it
                if points[0].module.partition(".")[0] == package and self[name] is type(part):
                    return name
        return None

    def origin(self, name: str) -> str:
        """The package that an entry comes from."""
        offered = self._offered.get(name)
        return OURS if not offered else _package(offered[0])

    @cached_property
    def _offered(self) -> dict[str, list["EntryPoint"]]:
        """What installed packages offer, by name; nothing of it is imported yet."""
        from importlib.metadata import entry_points  # slow to import, needed for names that are not ours

        found: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self.group):
            others = found.setdefault(point.name, [])
            if point.name not in self.data and _package(point) not in map(_package, others):
                others.append(point)
        return {name: points for name, points in found.items() if points}

    def _load(self, name: str) -> Callable[..., P]:
        point, *others = self._offered[name]
        if others:
            packages = ", ".join(sorted(map(_package, self._offered[name])))
            raise ConfigError(f"{self.kind} {name!r} is offered by several packages ({packages}); keep one of them")
        what = f"{self.kind} {name!r} of the package {_package(point)}"
        with refused(f"{what} cannot be loaded from {point.value}"):
            entry: Callable[..., P] = point.load()
        if not callable(entry):
            raise ConfigError(f"{what}: {point.value} cannot be called")
        return entry


def _package(point: "EntryPoint") -> str:
    return point.dist.name if point.dist is not None else "unknown"


def unknown(path: str, name: str, allowed: Iterable[str], *, kind: str = "key") -> str:
    """The line for an unknown key or name: the nearest known one, and all of them.

    >>> unknown("data.name", "minst", ["mnist", "digits"], kind="data set")
    "data.name: unknown data set 'minst'; did you mean 'mnist'? Expected one of: digits, mnist"
    """
    choices = sorted(allowed)
    nearest = get_close_matches(name, choices, n=1, cutoff=0.6)
    line = f"{path}: unknown {kind} {shown(name)}"
    if not choices:
        return f"{line}; there are none"
    hint = f"did you mean {nearest[0]!r}? Expected" if nearest else "expected"
    return f"{line}; {hint} one of: {', '.join(choices)}"


def shown(value: Any, most: int = 60) -> str:
    """A value as one short printable line."""
    text = repr(value[: most + 1] if isinstance(value, str | bytes) else value)  # it may be a stranger's 10 MB
    return text if len(text) <= most else text[: most - 3] + "..."
