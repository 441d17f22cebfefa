"""What one site of a federation holds: loaded by a Python file of the site's own, which nobody else sees.

The file is named by ``$ECGR_TASK`` on the site's machine, never by a config: it is the site's to run. Its function
``load`` returns training and test samples, each as (inputs, targets); nothing of them leaves the site.
"""

import os
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ecgr.component import Count, component
from ecgr.errors import ConfigError, DataError, EcgrError
from ecgr.tasks.data.array_files import array_dataset
from ecgr.tasks.data.dataset import Dataset, check_labels
from ecgr.tasks.data.official import Report
from ecgr.tasks.data.targets import Kind
from ecgr.tasks.samples import Samples, as_array, check_samples, map_arrays

VARIABLE = "ECGR_TASK"


@component
class Site:
    """The samples of this site alone, loaded by the Python file that $ECGR_TASK names: for federations."""

    kind: Kind = "auto"
    classes: Count | None = None  # where a site may lack some of them

    def folder(self) -> Path:
        """The site's file."""
        return task_file()

    def assess(self) -> Report:
        """Load all samples."""
        return Report("site", "whole", ("whole: the site's file loads",), self.load().counts)

    def load(self) -> Dataset:
        """Run the site's file and check what its ``load`` returns."""
        path = task_file()
        train, test = (_samples(path, half, given) for half, given in zip(("train", "test"), _run(path), strict=True))
        dataset = array_dataset(path.name, train, test, self.kind, files={})
        if self.classes is None:
            return dataset
        for where, samples in (("train", dataset.train), ("test", dataset.test)):
            check_labels(f"{path.name}: {where}", samples.targets, self.classes)
        names = tuple(map(str, range(self.classes)))
        return replace(dataset, shape={**dataset.shape, "classes": self.classes}, classes=names)


def task_file() -> Path:
    """The site's file."""
    given = os.environ.get(VARIABLE)
    if not given:
        raise ConfigError(f"${VARIABLE}: not set; it names the Python file that loads this site's samples")
    path = Path(given).expanduser()
    if not path.is_file():
        raise ConfigError(f"${VARIABLE}: {path} is not a file; give the Python file that loads this site's samples")
    return path


def _run(path: Path) -> tuple[Any, Any]:
    try:
        found = runpy.run_path(str(path), run_name="ecgr_site")
        load = found.get("load")
        if not callable(load):
            raise DataError(f"{path}: has no function `load`; it returns (inputs, targets) twice: to train and to test")
        halves = load()
    except EcgrError:
        raise
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        raise DataError(f"{path}: cannot load the samples ({type(error).__name__}: {line})") from error
    if not isinstance(halves, tuple | list) or len(halves) != 2:
        raise DataError(f"{path}: load gives {type(halves).__name__}; give training samples and test samples")
    return halves[0], halves[1]


def _samples(path: Path, half: str, given: Any) -> Samples:
    where = f"{path.name}: {half}"
    if not isinstance(given, Samples):
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise DataError(f"{where}: {type(given).__name__} does not fit; give (inputs, targets)")
        given = Samples(*given)
    check_samples(where, given)
    return Samples(map_arrays(np.asarray, given.inputs), as_array(given.targets))
