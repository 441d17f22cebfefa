"""A task: what is trained. Samples, a model, a loss, the metrics to judge by, and whose samples are whose.

A built-in data set with a model of the table makes one, and so do a person's own arrays and module.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ecgr.errors import ConfigError, DataError
from ecgr.tasks.losses import as_loss
from ecgr.tasks.materialise import is_map_style, materialise
from ecgr.tasks.metric_functions import as_metric
from ecgr.tasks.metrics import Metric
from ecgr.tasks.samples import Samples, as_array, check_samples

__all__ = ["Samples", "Task"]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """What is trained; whatever cannot be is refused here, with one line that says what and where.

    Attributes:
        model: a function that makes a fresh ``nn.Module``, or a module to start from.
        train: `Samples`, or (inputs, targets), or a map-style ``torch.utils.data.Dataset`` of such pairs.
        test: likewise; a third entry of the tuple (``Samples.groups``) names the client that a test sample belongs to.
        loss: an entry of ``ecgr.LOSSES`` or its name, or any function ``(outputs, targets) -> scalar``.
        metrics: entries of ``ecgr.METRICS`` or their names, or any scikit-learn function; the first one decides.
        clients: the client of each training sample; or how many clients to deal the samples out to.
        partition: how to deal them out, where ``clients`` is a number: an entry of ``ecgr.PARTITIONERS``.
        name: for the record and its folder.

    >>> task = Task(model=list, train=([[0.0], [1.0]], [0, 1]), test=([[2.0]], [1]), clients=["a", "b"])
    >>> task.primary.name, len(task.train), task.train.groups.tolist()
    ('accuracy', 2, ['a', 'b'])
    """

    model: Any
    train: Any
    test: Any
    loss: Any = "cross_entropy"
    metrics: Any = ("accuracy",)
    clients: Any = None
    partition: Any = None
    name: str = "task"

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise ConfigError(
                f"model: {type(self.model).__name__} cannot be called; give a function that makes a model"
            )
        train, test = _samples("train", self.train), _samples("test", self.test)
        clients = self.clients
        if clients is not None and not isinstance(clients, int):
            clients = as_array(clients).astype(np.str_)
            train = replace(train, groups=_checked_ids(clients, len(train)))
        for name, value in {
            "train": train,
            "test": test,
            "loss": as_loss(self.loss),
            "metrics": _by_name(self.metrics),
            "clients": clients,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def primary(self) -> Metric:
        """The metric that decides."""
        first: Metric = next(iter(self.metrics.values()))
        return first


def _samples(where: str, given: Any) -> Samples:
    """Samples from whatever a person may give."""
    if isinstance(given, tuple | list) and len(given) in {2, 3}:
        samples = Samples(*given)
    elif is_map_style(given):
        samples = materialise(where, given)
    elif isinstance(given, Samples):
        samples = given
    else:
        raise DataError(f"{where}: {type(given).__name__} does not fit; give (inputs, targets), Samples or a Dataset")
    check_samples(where, samples)
    return samples


def _checked_ids(ids: Any, samples: int) -> Any:
    if ids.shape != (samples,):
        raise DataError(f"clients: ids of shape {ids.shape} for {samples:,} training samples; give one for each")
    if len(np.unique(ids)) < 2:
        raise DataError(f"clients: all samples belong to {ids[0]!r}; a federation needs two clients or more")
    return ids


def _by_name(given: Any) -> dict[str, Metric]:
    """Metrics by name, in their order."""
    if isinstance(given, Mapping):
        given = list(given.values())
    elif isinstance(given, str) or callable(given) or hasattr(given, "part"):
        given = [given]
    metrics = [as_metric(entry) for entry in given]
    if not metrics:
        raise ConfigError("metrics: there is none; give at least one, the first one decides")
    if len({metric.name for metric in metrics}) < len(metrics):
        raise ConfigError(f"metrics: two of {', '.join(metric.name for metric in metrics)} have the same name")
    return {metric.name: metric for metric in metrics}
