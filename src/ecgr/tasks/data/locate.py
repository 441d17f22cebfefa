"""Where data sets lie: the ``root`` of the component, else ``$ECGR_DATA``, else the user's data folder.

One rule for every set, so that one message can say what was looked for, where, and what to do.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ecgr.errors import ConfigError, DataError


def data_root(root: str | None = None) -> Path:
    """The folder that holds the data sets.

    >>> data_root("/srv/data").as_posix()
    '/srv/data'
    """
    chosen = root or os.environ.get("ECGR_DATA")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path  # needed only where nobody says where the data is

    return user_data_path("ecgr", appauthor=False)


def find_folder(name: str, candidates: Sequence[str], root: str | None, advice: str | None = None) -> Path:
    """The first of ``candidates`` below the data folder that is there; if none is, a `DataError`."""
    base = data_root(root)
    for candidate in candidates:
        if (base / candidate).is_dir():
            return base / candidate
    raise missing(name, " or ".join(f"{candidate}/" for candidate in candidates), base, advice)


KINDS: Mapping[str, Callable[[Path], bool]] = {"there": Path.exists, "a file": Path.is_file, "a folder": Path.is_dir}


def own_path(name: str, root: str | None, needs: str, kind: str = "there") -> Path:
    """The file or folder of somebody's own that ``root`` names."""
    if root is None:
        raise ConfigError(f"data.root: {name} needs {needs}")
    path = Path(root).expanduser()
    if not KINDS[kind](path):
        raise DataError(f"{name}: {path} is not {kind}; set data.root to {needs}")
    return path


def missing(name: str, what: str, where: Path, advice: str | None = None) -> DataError:
    """The error for a set that is not there."""
    get_it = advice or f"run `ecgr data fetch {name}`"
    return DataError(f"{name}: no {what} in {where}; {get_it}, or set data.root or ECGR_DATA to the folder that has it")


def member(name: str, folder: Path, *spellings: str) -> Path:
    """The file of ``folder`` that has the first of these names; a `DataError` that names it if there is none."""
    for spelling in spellings:
        if (folder / spelling).is_file():
            return folder / spelling
    raise DataError(
        f"{name}: {folder / spellings[0]} is missing, the rest of the set is there;"
        f" `ecgr data fetch {name}` adds what is missing"
    )
