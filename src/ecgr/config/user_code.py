"""User code: objects in the place of names (a regulator, a model, a task of the user's), and tasks in Python files.

A config says what such an object is by its class and fields; what its code is, a run's identity says (`ecgr.code`).
A Python file is named on the command line (``my_task.py:task``), never by a config. It is run, and what it defines goes
to every worker.
"""

import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from ecgr.algorithms import Defaults, Entry
from ecgr.code import qualified_name
from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.tables import Table, unknown
from ecgr.tasks.task import Task

if TYPE_CHECKING:
    from ecgr.config.experiment import Experiment


PACKAGES = ("site-packages", "dist-packages")
_loaded: set[str] = set()
"""The names under which task files are among ``sys.modules``: the next file of that name takes the place."""
_folders: set[Path] = set()
"""Where they lie, which is where they import their own modules from."""
NAMED = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[A-Za-z_]\w*))?")


def description(table: Table[Any] | None, part: Any) -> dict[str, Any]:
    """How a record and a config name a part of an experiment: an entry of a table, or user code by class and fields."""
    part = unwrap(part)
    name = None if table is None else table.name_of(part)
    if name is None and isinstance(part, partial):
        return {**description(None, part.func), "arguments": plain([*part.args, dict(part.keywords)])}
    kind = part if inspect.isroutine(part) or inspect.isclass(part) else type(part)
    return {"name": name or qualified_name(kind), **plain_fields(part)}


def unwrap(part: Any) -> Any:
    """A user's object without the wrapper that made it complete."""
    return getattr(part, "function", getattr(part, "inner", part))


def plain_fields(part: Any) -> dict[str, Any]:
    """An object's fields as values that JSON can hold."""
    if is_dataclass(part) and not isinstance(part, type):
        return {field.name: plain(getattr(part, field.name)) for field in fields(part) if field.init}
    if inspect.isroutine(part) or inspect.isclass(part):
        return {}
    return {name: plain(value) for name, value in getattr(part, "__dict__", {}).items()}


def plain(value: Any) -> Any:
    """A value that JSON can hold; what it cannot is named, or hashed where it is an array."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": qualified_name(type(value)), **plain_fields(value)}
    if hasattr(value, "__array__"):
        import numpy as np  # only for arrays

        return sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    named = value if hasattr(value, "__qualname__") else type(value)
    return qualified_name(named) if named is value or " at 0x" in repr(value) else repr(value)


@dataclass(frozen=True, slots=True, eq=False)
class Completed:
    """A user's algorithm; what it does not define is the default: nothing corrected or remembered."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner if hasattr(self.inner, name) else DEFAULTS, name)


DEFAULTS = Defaults()
METHODS = [name for name in dir(Defaults) if not name.startswith("_")]


def complete(algorithm: Any) -> Entry:
    """An algorithm with all that the training loop calls."""
    whole = hasattr(algorithm, "parts") or all(hasattr(algorithm, name) for name in METHODS)
    return cast("Entry", algorithm if whole else Completed(algorithm))


def is_algorithm(given: Any) -> bool:
    """Whether an object defines at least one method of an algorithm."""
    return any(hasattr(given, name) for name in (*METHODS, "aggregate", "parts"))


def task_or_name(text: str) -> "str | Task | Experiment":
    """The task that ``FILE.py:NAME`` names (``task`` by default), made by a function or not; other text as it is."""
    found = NAMED.fullmatch(text)
    if found is None:
        return text
    from ecgr.config.experiment import Experiment  # which reads presets from here

    path, name = Path(found["file"]), found["name"] or "task"
    module = _run(path)
    if not hasattr(module, name):
        names = [own for own, value in vars(module).items() if isinstance(value, (Task, Experiment))]
        raise ConfigError(unknown(str(path), name, names, kind="task"))
    made = getattr(module, name)
    if callable(made) and not isinstance(made, (Task, Experiment)):
        with _errors_of(path, DataError, f"{name}(): "):
            made = made()
    if not isinstance(made, (Task, Experiment)):
        kind = type(made).__name__
        raise ConfigError(f"{path}: expected {name} to be an ecgr.Task or a function that makes one, got {kind}")
    return made


def _run(path: Path) -> ModuleType:
    """Import a file as a module; it can import the modules beside it."""
    import cloudpickle  # only for user code

    if not path.is_file():
        raise ConfigError(f"experiment: no file {path}")
    taken = _is_taken(path)
    name = f"ecgr_task_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"experiment: {path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    _look_beside(path.resolve().parent, last=taken)
    sys.modules[name] = module
    _loaded.add(name)
    with _errors_of(path, ConfigError):
        spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module


def _look_beside(folder: Path, last: bool) -> None:
    """Let a task file import what lies beside it, not what one from elsewhere had there under the same name."""
    for name, module in list(sys.modules.items()):
        home = getattr(module, "__file__", None)
        if home and Path(home).parent in _folders - {folder} and (folder / f"{name}.py").is_file():
            del sys.modules[name]
    if folder in _folders:
        sys.path[:] = [entry for entry in sys.path if entry != str(folder)]
    if str(folder) not in sys.path:
        # After the standard library, which it must not replace; before installed packages, unless named as one.
        behind = (at for at, entry in enumerate(sys.path) if Path(entry).name in PACKAGES or Path(entry) in _folders)
        sys.path.insert(len(sys.path) if last else next(behind, len(sys.path)), str(folder))
        _folders.add(folder)


def _is_taken(path: Path) -> bool:
    """Whether a file has the name of another module, which it would replace: ``copy.py``, ``json.py``, ``torch.py``."""
    if path.stem in _loaded:
        return False
    if path.stem in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(path.stem)
    except (ImportError, ValueError):
        return path.stem in sys.modules
    return spec is not None and (spec.origin is None or Path(spec.origin).resolve() != path.resolve())


@contextmanager
def _errors_of(path: Path, kind: type[EcgrError], what: str = "") -> Iterator[None]:
    """Around a user's code: whatever it raises becomes one line with the file and, where it is known, the line."""
    try:
        yield
    except EcgrError as error:
        raise type(error)(f"{path}: {what}{error}") from None
    except (Exception, SystemExit) as error:
        raise kind(f"{path}{_line(error, path)}: {what}{type(error).__name__}: {error}") from error


def _line(error: BaseException, path: Path) -> str:
    """Where in the file an error came from, if it did."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename in (str(path), str(path.resolve()))]
    return f", line {frames[-1].lineno}" if frames else ""
