"""Configs in files: the presets that come with the package, and anybody's own TOML."""

import re
import tomllib
from pathlib import Path
from typing import Any

from ecgr.errors import ConfigError
from ecgr.tables import unknown

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
