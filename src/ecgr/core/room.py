"""How much room there is, and what inner products take of it.

Asked before training starts, so that a store which is too large ends in one line and not in the middle of a round.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from ecgr.component import torch
from ecgr.errors import EnvironmentFault

UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
KEPT_FREE = 1.1  # what is asked for beyond the numbers themselves


class Room(NamedTuple):
    """Bytes, by where they are taken."""

    memory: float = 0.0
    disk: float = 0.0


def free_memory(device: "torch.device | str" = "cpu") -> int:
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


def gram_bytes(steps: int) -> float:
    """What the inner products take: regulating makes one T x T matrix of float64, and never a second one."""
    return 8.0 * steps * steps


def claim(descriptor: int, start: int, length: int) -> None:
    """Make ``length`` bytes of an open file really exist, or say that the disk is full."""
    try:
        os.posix_fallocate(descriptor, start, length)
    except OSError as error:
        raise EnvironmentFault(
            f"store disk: {gigabytes(length)} more cannot be had below {where()} ({error.strerror or error});"
            " set TMPDIR to a larger disk, or use the store int8"
        ) from None


def gigabytes(count: float) -> str:
    """Bytes for a person to read.

    >>> gigabytes(2.5e9), gigabytes(3e5), gigabytes(2048)
    ('2.5 GB', '0.3 MB', '2.0 kB')
    """
    unit, name = next(((unit, name) for unit, name in UNITS if count >= unit / 10), UNITS[-1])
    return f"{count / unit:.1f} {name}"


def where() -> str:
    """The directory that temporary files are made in."""
    return tempfile.gettempdir()
