"""What user code is: a hash of everything that decides what it does, piece by piece.

A function is its byte code, its defaults, and what its closure and the globals that it loads hold. A class is its bases
and members. Both are followed through the user's own files; installed packages count by their version, objects by
class and state, arrays and tensors by their bytes. No address, path, time or order of a set enters a hash, so that
another process finds the same.

>>> def scaled(x, by=2):
...     return x * by
>>> [name.rpartition(".")[2] for name in code_of(scaled).pieces], code_of(len).pieces
(['scaled'], {})
"""

import dis
import os
import sys
import sysconfig
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from inspect import getattr_static
from operator import itemgetter
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

CONSTANT, STATE = "constant", "state"
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), type(NotImplemented), range)
LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
LONG = 200


class Code(NamedTuple):
    """The hashes of all user code that something reaches, by name, and the versions of the packages that it names."""

    pieces: dict[str, str]
    packages: dict[str, str]


def code_of(part: Any) -> Code:
    """What ``part`` is made of: a function, a class, or an object with a state, which has a hash of its own."""
    walk = _Walk()
    state = walk.text(part)
    walk.finish()
    is_object = not isinstance(part, type | FunctionType | BuiltinFunctionType)
    if is_object and (hasattr(part, "state_dict") or type(part).__module__.split(".")[0] != "ecgr"):  # weights count
        walk.pieces[STATE] = _digest(state)
    return Code(dict(sorted(walk.pieces.items())), dict(sorted(walk.packages.items())))


def qualified_name(kind: Any) -> str:
    """Where a class or function is defined, in characters that a file's name may have."""
    return _plain_name(f"{getattr(kind, '__module__', None)}.{kind.__qualname__}")


def _plain_name(name: str) -> str:
    return name.replace("<locals>.", "").replace("<lambda>", "lambda")


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class _Walk:
    """One way through user code. Definitions are met by name and followed later, so that they may call each other."""

    def __init__(self) -> None:
        self.pieces: dict[str, str] = {}
        self.packages: dict[str, str] = {}
        self._names: dict[int, str] = {}
        self._taken: Counter[str] = Counter()
        self._todo: deque[tuple[str, Any]] = deque()
        self._open: list[int] = []
        self._kept: list[Any] = []  # what has an id here must not give it to something else
        self._modules: set[str] = set()
        self._folder = ""

    def finish(self) -> None:
        """Follow all that was met."""
        while self._todo:
            name, definition = self._todo.popleft()
            self._folder = str(Path(_file(definition) or ".").absolute().parent)
            said = self._function(definition) if isinstance(definition, FunctionType) else self._class(definition)
            self.pieces[name] = _digest("\n".join(said))

    def text(self, value: Any) -> str:  # noqa: PLR0911  # one for each kind
        """A value as text that is the same wherever the value is."""
        if type(value) is str and len(self._folder) > 1:  # a project may be moved
            return f"str {value.replace(self._folder, '.')!r}"
        if type(value) in PLAIN:
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, FunctionType) and not _is_installed(value.__code__.co_filename):
            return self._later(value, f"{_home(value)}.{value.__qualname__}")
        if isinstance(value, type):
            if not _is_user(value):
                return self._installed(value.__module__, value.__qualname__)
            return self._later(value, f"{value.__module__}.{value.__qualname__}")
        if isinstance(value, ModuleType):
            return self._module(value, None)
        if id(value) in self._open:
            return f"the one {len(self._open) - self._open.index(id(value))} around"
        self._open.append(id(value))
        self._kept.append(value)
        try:
            said = self._value(value)
        except Exception:  # it cannot be read, in whatever way it was made
            said = f"a {self.text(type(value))}"
        finally:
            self._open.pop()
        return said if len(said) < LONG else _digest(said)

    def _value(self, value: Any) -> str:  # noqa: PLR0911  # one for each kind
        kind = type(value)
        if isinstance(value, FunctionType):
            return self._packaged(value)
        if kind in (list, tuple):
            return f"{kind.__name__} [{self._texts(value)}]"
        if kind in (dict, MappingProxyType):
            return f"dict {{{self._texts(entry for pair in value.items() for entry in pair)}}}"
        if kind in (set, frozenset):
            return f"{kind.__name__} {{{', '.join(sorted(map(self.text, value)))}}}"
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, MethodType):
            return f"{self.text(value.__func__)} of {self.text(value.__self__)}"
        if isinstance(value, PurePath):
            return f"path {os.path.relpath(value, self._folder) if value.is_absolute() else value}"
        if isinstance(value, property | cached_property):
            return f"{kind.__name__} {self._texts(getattr(value, n, None) for n in ('fget', 'fset', 'fdel', 'func'))}"
        if hasattr(value, "__wrapped__"):
            return f"{kind.__name__} {self.text(value.__wrapped__)}"
        if hasattr(value, "__array__") and hasattr(value, "dtype"):
            return f"{kind.__name__} {value.dtype} {tuple(value.shape)} {self._bytes(value)}"
        if hasattr(value, "__qualname__"):  # not written in Python
            return self._installed(str(getattr(value, "__module__", None) or "builtins"), value.__qualname__)
        return self._object(value)

    def _texts(self, values: Iterable[Any]) -> str:
        return ", ".join(self.text(value) for value in values)

    def _bytes(self, value: Any) -> str:
        if hasattr(value, "detach"):  # numpy has no bfloat16
            value = value.detach().cpu().to_dense().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()
        import numpy as np  # only for arrays

        array = np.asarray(value)
        return self.text(array.tolist()) if array.dtype.hasobject else sha256(array.tobytes()).hexdigest()[:16]

    def _object(self, value: Any) -> str:
        """Class and state, as pickle would take them; what has no such state is its class."""
        kind = type(value)
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            return f"a {self.text(kind)}"
        if isinstance(reduced, str):
            return f"{self.text(kind)} {reduced}"
        make, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if isinstance(state, dict):  # what was computed on demand says nothing, and is not there the first time
            state = {k: v for k, v in state.items() if not isinstance(getattr_static(kind, k, None), cached_property)}
        held = [make, arguments, state, list(items or ()), list(pairs or ())]
        return f"{self.text(kind)} {self._texts(held)}"

    # Definitions

    def _packaged(self, function: FunctionType) -> str:
        """A package's function, with what it holds where that is user code: it may be a decorator."""
        inner = [value for _, value in _cells(function) if _is_user(value) or type(value) in PLAIN]
        around = f" around {self._texts(inner)}" if any(map(_is_user, inner)) else ""
        return self._installed(_home(function), function.__qualname__) + around

    def _later(self, definition: Any, name: str) -> str:
        """A definition's name here; two of one name are told apart by the order in which they are met."""
        if id(definition) not in self._names:
            name = _plain_name(name)
            self._taken[name] += 1
            self._names[id(definition)] = name if self._taken[name] == 1 else f"{name} ({self._taken[name]})"
            self._kept.append(definition)
            self._todo.append((self._names[id(definition)], definition))
        return self._names[id(definition)]

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield self._code(function.__code__)
        yield self.text([function.__defaults__, function.__kwdefaults__])
        yield self.text({name: value for name, value in vars(function).items() if name != "__wrapped__"})
        yield from (f"{name} = {self.text(value)}" for name, value in _cells(function))
        codes, around = list(_codes(function.__code__)), function.__globals__
        names = {name for code in codes for name in code.co_names}
        done = sorted({(str(step.argval), step.opname) for code in codes for step in dis.get_instructions(code)})
        for name, operation in done:
            if operation in LOADS and name in around and not name.startswith("__"):
                yield self._global(_home(function), name, around[name], names)
            elif operation == "IMPORT_NAME":
                for module in _imported(name, around.get("__package__")):
                    yield self._module(module, names)

    def _class(self, kind: type) -> Iterator[str]:
        yield self._texts([type(kind), *kind.__bases__])
        for name, member in sorted(vars(kind).items()):
            written = isinstance(member, FunctionType | staticmethod | classmethod | property)
            if name != "_abc_impl" and (written or not (name.startswith("__") and name.endswith("__"))):
                yield f"{name} = {self.text(member)}"
        for name, field in getattr(kind, "__pydantic_fields__", {}).items():
            yield f"{name} = {self._texts([field.default, field.default_factory])}"

    def _global(self, home: str, name: str, value: Any, names: set[str]) -> str:
        if isinstance(value, ModuleType):
            return f"{name} = {self._module(value, names)}"
        if not isinstance(value, type | FunctionType) and not hasattr(value, "__qualname__"):
            key = f"{CONSTANT} {home}.{name}"
            self.pieces[key] = self.pieces.get(key) or _digest(self.text(value))
            return name
        return f"{name} = {self.text(value)}"

    def _module(self, module: ModuleType, names: set[str] | None) -> str:
        """Of a user's module what is ``names``; all of it where that says nothing, or is not known."""
        if not _is_user(module):
            return self._installed(module.__name__, "")
        held = [(k, v) for k, v in sorted(vars(module).items(), key=itemgetter(0)) if not k.startswith("__")]
        wanted = [(k, v) for k, v in held if k in (names or ())]
        if not wanted and module.__name__ not in self._modules:
            self._modules.add(module.__name__)
            wanted = held
        said = [self._global(module.__name__, k, v, names or set()) for k, v in wanted]
        return f"{module.__name__}: {', '.join(said)}"

    def _code(self, code: CodeType) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return self._texts([code.co_code, code.co_exceptiontable, names, counts, code.co_consts])

    def _installed(self, module: str, name: str) -> str:
        package = module.partition(".")[0]
        if package not in (*sys.stdlib_module_names, "ecgr", "None"):
            self.packages.setdefault(package, _version(package))
        return f"{module}.{name}"


def _home(function: FunctionType) -> str:
    return str(function.__globals__.get("__name__"))


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a closure holds, by name."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not filled yet
            continue


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code and those of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imported(name: str, package: Any) -> Iterator[ModuleType]:
    """The user's modules that an import within a function means."""
    for full in (name, f"{package}.{name}") if package else (name,):
        try:
            spec = None if full in sys.modules or not name else find_spec(full)
            if full in sys.modules or (spec is not None and not _is_installed(spec.origin or "<frozen>")):
                yield import_module(full)
        except Exception:  # it fails when it is called, then, and says so
            continue


def _is_user(value: Any, around: tuple[int, ...] = ()) -> bool:
    """Whether something, what a function holds, or else its class is written in the user's own files."""
    if isinstance(value, FunctionType):
        inside = (*around, id(value))
        held = (cell for _, cell in _cells(value) if id(cell) not in inside)
        return not _is_installed(value.__code__.co_filename) or any(_is_user(cell, inside) for cell in held)
    if isinstance(value, MethodType):
        return _is_user(value.__func__, around)
    if not isinstance(value, type | ModuleType):
        return _is_user(type(value))
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    if name == "__main__" or (isinstance(value, type) and name not in sys.modules):  # a script, or another process's
        return True
    files = _file(value), getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    return files[0] is not None and not any(map(_is_installed, filter(None, files)))


def _file(definition: Any) -> str | None:
    """Where a function, a class or a module is written, if that is a file."""
    if isinstance(definition, FunctionType):
        return definition.__code__.co_filename
    module = definition if isinstance(definition, ModuleType) else sys.modules.get(definition.__module__)
    return getattr(module, "__file__", None)


@cache
def _is_installed(file: str) -> bool:
    """Whether a file is of Python, of an installed package or of this one."""
    if file.startswith("<"):
        return file.startswith("<frozen")
    path = PurePath(os.path.realpath(file))
    return bool({"site-packages", "dist-packages"} & {*path.parts}) or any(map(path.is_relative_to, _roots()))


@cache
def _roots() -> tuple[str, ...]:
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(os.path.realpath(path) for path in (*paths, str(Path(__file__).parent)))


@cache
def _version(package: str) -> str:
    from importlib import metadata  # slow to import, and only needed for packages that do not say theirs

    said = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(said, str):
        return said
    names = metadata.packages_distributions().get(package, [])
    return metadata.version(names[0]) if names else "unknown"
