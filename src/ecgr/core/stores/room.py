"""How much room a store takes, how much there is, and which store would fit.

Asked before training starts, so that a set which is too large ends in one line and not in the middle of a round.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch

from ecgr.errors import ConfigError, EnvironmentFault

USUAL_STEPS = 256  # assumed where nobody says how many there will be
KEPT_FREE = 1.1  # what is asked for beyond the rows themselves

BYTES_PER_NUMBER: Mapping[str, float] = {"dense": 4.0, "bf16": 2.0, "int8": 1.0 + 4 / 256}
"""In memory, by store; ``disk`` takes 4 on the disk, ``replay`` next to nothing anywhere."""


def free_memory(device: torch.device | str = "cpu") -> int:
    """Bytes that can still be had where ``device`` computes."""
    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: all there is must do
        found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(found, _container_limit())


def _container_limit() -> int:
    """What a container leaves of the machine's memory."""
    group = Path("/sys/fs/cgroup")
    try:
        return max(0, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return 2**62


def free_disk() -> int:
    """Bytes that can still be written below ``$TMPDIR``."""
    return shutil.disk_usage(tempfile.gettempdir()).free


def fits(store: str, size: int, steps: int, sets: int, device: torch.device | str = "cpu") -> bool:
    """Whether ``sets`` sets of ``steps`` displacements of ``size`` numbers can be held at the same time."""
    if store == "disk":
        return KEPT_FREE * 4.0 * size * steps * sets <= free_disk()
    needed = KEPT_FREE * BYTES_PER_NUMBER.get(store, 0.0) * size * steps * sets
    return needed <= free_memory(device)


def pick(size: int, steps: int | None, *, device: torch.device | str = "cpu", replayable: bool = False) -> str:
    """The store that ``auto`` stands for: ``dense`` where it is small, else ``disk``, which gives the same bits.

    Small means: fits into half of the free memory when as many processes as there are cores hold one. Where the disk is
    too small as well, ``replay``, if the training can be run again.

    >>> pick(61_706, 47)
    'dense'
    """
    count, processes = steps or USUAL_STEPS, os.cpu_count() or 1
    if fits("dense", size, count, 2 * processes, device):
        return "dense"
    if fits("disk", size, count, processes):
        return "disk"
    if replayable:
        return "replay"
    raise ConfigError(f"store: {_described(size, count)} fit neither in memory nor on the disk below {_where()}")


def check_room(store: str, size: int, steps: int, sets: int, device: torch.device | str = "cpu") -> None:
    """Refuse a store that cannot hold its rows; the message names those that can.

    >>> check_room("dense", 61_706, 47, sets=1)
    """
    if store == "auto" or fits(store, size, steps, sets, device):
        return
    others = [name for name in ("dense", "disk", "bf16", "int8", "replay") if fits(name, size, steps, sets, device)]
    held = f" for each of {sets} processes" if sets > 1 else ""
    if store == "disk":
        raise EnvironmentFault(
            f"run.store: {_described(size, steps)}{held} do not fit on the disk below {_where()}"
            f" ({gigabytes(free_disk())} free); set TMPDIR to a larger one, or use {', '.join(others)}"
        )
    raise ConfigError(
        f"run.store: {store!r} would hold {_described(size, steps, BYTES_PER_NUMBER[store])}{held} in memory"
        f" ({gigabytes(free_memory(device))} free); what fits: {', '.join(others)}"
    )


def claim(descriptor: int, start: int, length: int) -> None:
    """Make ``length`` bytes of an open file really exist, or say that the disk is full."""
    try:
        os.posix_fallocate(descriptor, start, length)
    except OSError as error:
        raise EnvironmentFault(
            f"store disk: {gigabytes(length)} more cannot be had below {_where()} ({error.strerror or error});"
            " set TMPDIR to a larger disk, or use the store replay"
        ) from None


def gigabytes(count: float) -> str:
    """Bytes for a person to read.

    >>> gigabytes(2.5e9), gigabytes(3e5)
    ('2.5 GB', '0.3 MB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _described(size: int, steps: int, each: float = 4.0) -> str:
    return f"{steps} steps of {size:,} numbers ({gigabytes(size * steps * each)})"


def _where() -> str:
    return tempfile.gettempdir()
