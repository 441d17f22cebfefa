"""Configs and tasks in files: the presets that come with the package, a TOML file, a task in a Python file.

A Python file is named on the command line (``my_task.py:task``), never by a config. It is run, and what it defines goes
to every worker.
"""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.tables import unknown
from ecgr.tasks.task import Task

if TYPE_CHECKING:
    from ecgr.config.experiment import Experiment

MAX_BYTES = 1_000_000
MAX_DEPTH = 32
PACKAGED = Path(__file__).parents[1] / "experiments"
CHECKED_OUT = Path(__file__).parents[3] / "experiments"


def presets() -> dict[str, Path]:
    """The named experiments that come with the package."""
    folder = PACKAGED if PACKAGED.is_dir() else CHECKED_OUT
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.toml"))}


def read_file(source: str | Path) -> dict[str, Any]:
    """The nested dict behind a preset's name or a TOML file, not yet checked; it has a run's name."""
    path = _find(source)
    if path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes; a config is a page, not a data file")
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
        if any(line.partition("=")[0].count(".") > MAX_DEPTH for line in text.splitlines()):
            raise RecursionError  # the parser takes a time quadratic in the depth of a dotted key
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply for a config") from None
    if "run" not in raw or (isinstance(raw["run"], dict) and "name" not in raw["run"]):
        raw.setdefault("run", {})["name"] = as_name(path.stem)
    return raw


def as_name(stem: str) -> str:
    """A file's name as a run's name: what may not stand in one becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", stem).lstrip("._-")[:64] or "run"


def _find(source: str | Path) -> Path:
    known = presets()
    if str(source) in known:
        return known[str(source)]
    path = Path(source)
    if path.is_file():
        return path
    raise ConfigError(unknown("experiment", str(source), known, kind="preset or file"))


PACKAGES = ("site-packages", "dist-packages")
_loaded: set[str] = set()
"""The names under which task files are among ``sys.modules``: the next file of that name takes the place."""
NAMED = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[A-Za-z_]\w*))?")


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
    value = getattr(module, name)
    made = value if isinstance(value, (Task, Experiment)) else _call(path, name, value)
    if not isinstance(made, (Task, Experiment)):
        kind = type(made).__name__
        raise ConfigError(f"{path}: {name} is of type {kind}; give an ecgr.Task, or a function that makes one")
    return made


def _run(path: Path) -> ModuleType:
    """The module that a file is; modules beside it can be imported by it."""
    import cloudpickle  # only for user code

    if not path.is_file():
        raise ConfigError(f"experiment: no file {path}")
    taken = _is_taken(path)
    name = f"ecgr_task_{path.stem}" if taken else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"experiment: {path} cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        # After the standard library, which it must not replace; before installed packages, unless named as one.
        installed = (number for number, entry in enumerate(sys.path) if Path(entry).name in PACKAGES)
        sys.path.insert(len(sys.path) if taken else next(installed, len(sys.path)), folder)
    sys.modules[name] = module
    _loaded.add(name)
    try:
        spec.loader.exec_module(module)
    except EcgrError as error:
        raise type(error)(f"{path}: {error}") from None
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path}{_line(error, path)}: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


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


def _call(path: Path, name: str, make: Any) -> Any:
    if not callable(make):
        return make
    try:
        return make()
    except EcgrError as error:
        raise type(error)(f"{path}: {name}(): {error}") from None
    except (Exception, SystemExit) as error:
        raise DataError(f"{path}{_line(error, path)}: {name}(): {type(error).__name__}: {error}") from error


def _line(error: BaseException, path: Path) -> str:
    """Where in the file an error came from, if it did."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    number, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path.resolve() or trace.tb_frame.f_code.co_filename == str(path):
            number = trace.tb_lineno
        trace = trace.tb_next
    return "" if number is None else f", line {number}"
