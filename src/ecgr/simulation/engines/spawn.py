"""How a worker process is begun: it does not hear Ctrl-C, finds its parent's modules and keeps its memory."""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

import torch.multiprocessing as mp

PRELOADED = ["ecgr.simulation.engines.preloaded"]
BEFORE = "ECGR_ENVIRONMENT_BEFORE"
"""The variable that holds what `same_modules` changed."""
ONE_AT_A_TIME = Lock()
"""For threads: while a process is begun, this one looks different."""


def worker_contexts() -> list[Any]:
    """How processes come into being, the best way first; the next is for when it fails.

    Where that is possible, they are forked from a process of this program's own that has imported what training needs
    and has done nothing else: importing torch takes longer than many a run. Otherwise each is begun from nothing.
    """
    from_nothing = mp.get_context("spawn")
    if sys.platform != "linux":  # the libraries of macOS mind being forked, and Windows cannot
        return [from_nothing]
    forked = mp.get_context("forkserver")
    forked.set_forkserver_preload(PRELOADED)
    return [forked, from_nothing]


def begin(process: Any) -> None:
    """Start a process of one of `worker_contexts`."""
    with ONE_AT_A_TIME, same_modules(), no_interrupts(), no_main_module():
        process.start()


def adopt(variables: Mapping[str, str]) -> None:
    """Make the environment that of the process which asked for this one; it may have changed since the first worker."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


@contextmanager
def no_interrupts() -> Iterator[None]:
    """A process begun in here never hears Ctrl-C, not even while it imports: ending it is its parent's to do."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # lets Ctrl-C through again when it begins a process of its own
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def same_modules() -> Iterator[None]:
    """A process begun in here imports from where this one would, from its first line on.

    By itself it would look into the working directory first, whatever lies there, and not at what this program has
    changed in ``sys.path``: its workers could run another version of what this one runs.
    """
    found = [entry or str(Path.cwd()) for entry in sys.path if isinstance(entry, str) and os.pathsep not in entry]
    changes = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(found)}
    before = json.dumps({name: os.environ.get(name) for name in changes})
    os.environ.update(changes | {BEFORE: before})
    try:
        yield
    finally:
        restore_environment()


def restore_environment() -> None:
    """Undo what `same_modules` changed, here or in the process that began this one."""
    for name, value in json.loads(os.environ.pop(BEFORE, "{}")).items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def no_main_module() -> Iterator[None]:
    """A process begun in here does not run the user's script again, which might start processes itself.

    Nothing is missed there: what a script or a notebook defines travels by value (`ecgr.simulation.portable`).
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
KEPT, FROM_HEAP = 2**30, 2**25


def keep_freed_memory() -> None:
    """Have the C library keep what this process frees for its next step: the system clears every page it hands out.

    A step frees all its activations. glibc gives them back once there are a few megabytes of them at the end of its
    heap, which is a tenth of the time of small steps; elsewhere nothing happens here.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, FROM_HEAP)
