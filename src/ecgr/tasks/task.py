"""A task: what is trained. Samples, a model, a loss, the metrics to judge by, and whose samples are whose.

A built-in data set with a model of the table makes one, and so do a person's own arrays and module.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, is_dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from inspect import isroutine
from math import isnan
from numbers import Integral, Real
from operator import itemgetter
from typing import Any

import numpy as np

from ecgr.code import qualified_name
from ecgr.errors import ConfigError, DataError
from ecgr.tables import shown, unknown
from ecgr.tasks.data.dataset import Dataset, input_shape, parted
from ecgr.tasks.data.frames import Missing, encode_halves, part_pair, split_frame
from ecgr.tasks.data.items import BEGINNING, Reader, Transform, is_map_style, read_items
from ecgr.tasks.losses import BCE, as_loss
from ecgr.tasks.metrics import CallableMetric, Metric, as_metric
from ecgr.tasks.models import MODELS
from ecgr.tasks.samples import (
    Items,
    Samples,
    as_array,
    as_samples,
    check_samples,
    is_frame,
    is_series,
    map_arrays,
    named_arrays,
)

__all__ = ["Samples", "Task", "TaskIdentity"]

MOST_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """What a record says of a task, and what is left of it where its samples have been handed on."""

    name: str
    sha256: str
    loss: str
    judged_by: str

    def load(self) -> Dataset:
        raise DataError(f"{self.name}: the samples of this task are in the process that made it; give the task itself")


@dataclass(frozen=True, eq=False)
class Task:
    """What is trained; whatever cannot be is refused here, with one line that says what and where.

    Attributes:
        model: a function that makes a fresh ``nn.Module``, or a module to start from.
        train: `Samples`, or (inputs, targets), or a map-style ``torch.utils.data.Dataset`` of such pairs, or one of
            dicts, as of Hugging Face. Inputs may be a pandas DataFrame, targets a Series: see `ecgr.tasks.data.frames`
            for how they are encoded.
        test: likewise, or the share of each client's samples that is held out; a third entry of the tuple
            (``Samples.groups``) names the client that a sample belongs to.
        loss: an entry of ``ecgr.LOSSES`` or its name, or any function ``(outputs, targets) -> scalar``.
        metrics: entries of ``ecgr.METRICS`` or their names, or any scikit-learn function, or functions by a name of
            one's own (``{"cost": cost}``); the first one decides. By default accuracy, of numbers MAE and R².
        clients: the client of each training sample; or how many clients to partition the samples over; or, of items
            that are dicts, the key of an item's client.
        partition: how to partition them, where ``clients`` are no ids: an entry of ``ecgr.PARTITIONERS``.
        name: for the record and its folder.
        inputs: of items that are dicts: the key of the inputs, or a list of those that the model takes by name.
        target: of items that are dicts: the key of the target.
        transform: called with each item's inputs; what it may draw from, `ecgr.tasks.data.items` says.
        test_transform: what test samples go through, by default ``transform``.
        cache: whether training samples are read and transformed once, which freezes augmentation, or at every epoch.
        trainable: which parameters of the model are trained, all by default: ``"head"`` (the last part), a pattern of
            their names as ``"layer4.*"``, or a function (name, parameter) -> bool. Features of a frozen body are
            computed once.
        test_clients: the client of each test sample, as in ``clients``: then each client can be scored on its own.
        server: labelled samples that the server has, as ``train``: no client's, and never tested with.
        redraw: whether a comparison draws the split into training and test samples anew with each seed.

    >>> task = Task(model=list, train=([[0.0], [1.0]], [0, 1]), test=([[2.0]], [1]), clients=["a", "b"])
    >>> task.primary.name, len(task.train), task.train.groups.tolist()
    ('accuracy', 2, ['a', 'b'])
    """

    model: Any
    train: Any
    test: Any = 0.2
    loss: Any = "cross_entropy"
    metrics: Any = None
    clients: Any = None
    partition: Any = None
    name: str = "task"
    trainable: Any = None
    test_clients: Any = None
    server: Any = None
    settings: InitVar[Any] = None
    notes: tuple[str, ...] = field(default=(), repr=False)
    redraw: bool = field(default=False, repr=False)
    inputs: InitVar[str | Sequence[str] | None] = None
    target: InitVar[str | None] = None
    transform: InitVar[Transform | None] = None
    test_transform: InitVar[Transform | None] = None
    cache: InitVar[bool] = True

    def __post_init__(self, settings: Any, *reading: Any) -> None:
        if settings is not None:
            raise ConfigError("settings: belong to a run, not to a task; give them to ecgr.compare or ecgr.run")
        _check_model(self.model, self.trainable, self.name)
        inputs, target, transform, test_transform, cache = reading
        keys = _keys(inputs, target, self.clients)
        read: Callable[..., Reader] = partial(Reader, scored=test_transform or transform, **keys)
        share = self.test if isinstance(self.test, Real) else None
        given = self.clients if keys.get("client") is None else None
        halves = self.train, self.test
        if share is not None:
            _check_share(share, transform)
            halves, given = _parted_frame(self.train, given, float(share))
        train, test, notes = encode_halves(*halves)
        train = _samples(read("train", train, transform=transform, fresh=not cache))
        clients = _clients(given, train, self.partition)
        if isinstance(clients, np.ndarray):
            train = replace(train, groups=clients)
        if share is not None and halves[0] is halves[1]:
            train, test = parted(train, float(share), seed=0)
            clients = train.groups if isinstance(clients, np.ndarray) else clients
        else:
            test = _samples(read("test", test))
        if share is not None:
            notes = (*notes, f"no test samples were given: {len(test)} of {len(train) + len(test)} are held out")
        if self.test_clients is not None:
            test = replace(test, groups=_test_clients(self.test_clients, test, clients))
        loss = as_loss(self.loss)
        of_numbers = train.targets.dtype.kind == "f" and not isinstance(loss, BCE)
        metrics = _by_name((("mae", "r2") if of_numbers else "accuracy") if self.metrics is None else self.metrics)
        made = {"train": train, "test": test, "loss": loss, "metrics": metrics, "clients": clients}
        made |= {"notes": (*self.notes, *notes), "redraw": self.redraw or share is not None}
        if self.server is not None:
            made["server"] = _samples(read("server", self.server))
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        target: str,
        model: Any,
        client: str | None = None,
        test: Any = 0.2,
        features: Any = None,
        missing: Missing = "median",
        split_seed: int = 0,
        **options: Any,
    ) -> "Task":
        """A task of a pandas DataFrame.

        Args:
            frame: one row a sample.
            target: the column to predict.
            model: as of a task.
            client: the column that names each row's client.
            test: a share of each client's rows, a column that is True where a row is to test with, or another table.
            features: the columns to predict from; all others where nothing is said.
            missing: "median" or "mean" of the training rows in place of a missing number, "drop" leaves its row out,
                "refuse" names it.
            split_seed: decides which rows a share is.
            **options: as of a task: loss, metrics, clients, partition, name.
        """
        train, held_out, notes = split_frame(frame, target, client, test, features, missing, split_seed)
        train, held_out, more = encode_halves(train, held_out, missing)
        drawn = {"redraw": isinstance(test, int | float), **options}
        return cls(model=model, train=train, test=held_out, notes=(*notes, *more), **drawn)

    @property
    def primary(self) -> Metric:
        first: Metric = next(iter(self.metrics.values()))
        return first

    @cached_property
    def identity(self) -> TaskIdentity:
        """Its name, a hash of all its arrays, and what its loss and its metrics are called."""
        digest = sha256()
        for samples in (self.train, self.test, *([] if self.server is None else [self.server])):
            arrays = [*named_arrays(samples.inputs), ("targets", samples.targets)]
            arrays += [] if samples.groups is None else [("groups", samples.groups)]
            for name, array in arrays:
                digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
                if isinstance(array, Items):
                    digest.update(array.sha256.encode())
                    array = array.numbers  # noqa: PLW2901  # which of them
                digest.update(np.ascontiguousarray(array).data if array.size else b"")
        metrics = ", ".join(map(_said, self.metrics.values()))
        return TaskIdentity(self.name, digest.hexdigest(), _said(self.loss), metrics)

    @property
    def partition_section(self) -> dict[str, Any]:
        """What the task says about its clients, as a section of a config."""
        if isinstance(self.clients, np.ndarray):
            return {"name": "groups", "min_batches": 0}
        given = {"clients": self.clients, "name": self.partition}
        return {key: value for key, value in given.items() if value is not None}

    def load(self) -> Dataset:
        classes = np.unique(self.train.targets) if self.train.targets.dtype.kind in "biu" else np.empty(0)
        whole = self.train.targets.ndim == 1 and 2 <= len(classes) <= MOST_CLASSES
        return Dataset(
            self.train,
            self.test,
            _shape(self.train),
            loss=self.loss,
            metrics=tuple(self.metrics.values()),
            classes=tuple(str(i) for i in range(int(classes.max()) + 1)) if whole and classes.min() == 0 else (),
            files={"task": self.identity.sha256},
            notes=self.notes,
            server=self.server,
        )


def _said(part: Any) -> str:
    """A loss or a metric by name and fields; what its code is, a run's identity says."""
    own = getattr(part, "function", part)
    if own is part and is_dataclass(part):
        return re.sub(r" at 0x[0-9a-f]+", "", repr(part))
    return f"{qualified_name(own if isroutine(own) else type(own))} {getattr(part, 'name', '')}".strip()


def _shape(train: Samples) -> dict[str, int]:
    """What a model of the table would have to know, as far as the arrays tell."""
    targets, shape = train.targets, input_shape(train.inputs)
    if targets.ndim == 1 and targets.dtype.kind in "iu":
        return {**shape, "classes": int(targets.max()) + 1}
    return {**shape, "outputs": int(np.prod(targets.shape[1:]))}


def _check_share(share: Any, transform: Transform | None) -> None:
    if isinstance(share, bool) or not 0 < share < 1:
        raise ConfigError(f"test: expected samples, or the share that is held out, such as 0.2; got {share!r}")
    if transform is not None:
        raise ConfigError("test: samples that go through a transform are not parted; give the test samples")


def _check_model(model: Any, trainable: Any, name: Any) -> None:
    if isinstance(model, str) and model not in MODELS:
        raise ConfigError(unknown("model", model, MODELS, kind="model"))
    if not callable(model) and not isinstance(model, str):
        raise ConfigError(f"model: {type(model).__name__} cannot be called; give a function that makes one")
    if not (trainable is None or isinstance(trainable, str) or callable(trainable)):
        raise ConfigError(f"trainable: expected 'head', a pattern or a function, got {shown(trainable)}")
    if not isinstance(name, str):
        raise ConfigError(f"name: expected text, got {name!r}")


def _parted_frame(train: Any, clients: Any, share: float) -> tuple[tuple[Any, Any], Any]:
    """The halves of a DataFrame, with their rows' clients in them; other data as they are, to be parted once read."""
    if not (isinstance(train, tuple | list) and len(train) in {2, 3} and is_frame(train[0])):
        return (train, train), clients
    halves = part_pair(train, clients, share)
    return halves, clients if len(halves[0]) == len(train) else None


def _clients(given: Any, train: Samples, partition: Any) -> Any:
    """How many clients there are, or the client of each training sample; None where nothing is said."""
    if isinstance(given, Integral):
        if given < 2:
            raise ConfigError(f"clients: expected 2 or more, got {given}")
        return int(given)
    if given is None and (partition is not None or train.groups is None):
        return None
    if partition is not None:
        raise ConfigError("partition: the clients' ids say whose each sample is; leave out one of the two")
    ids = train.groups if given is None else _ids("clients", given, "train", train)
    if len(np.unique(ids)) < 2:
        raise DataError(f"clients: all samples belong to '{ids[0]}'; a federation needs two clients or more")
    return ids


def _test_clients(given: Any, test: Samples, clients: Any) -> Any:
    """The client of each test sample."""
    if not isinstance(clients, np.ndarray):
        raise ConfigError("test_clients: name clients by their ids; give clients= the id of each training sample, too")
    ids = _ids("test_clients", given, "test", test)
    if strangers := sorted({*ids.tolist()} - {*clients.tolist()}):
        raise DataError(f"test_clients: {strangers[0]!r} has no training sample; leave out its test samples")
    return ids


def _ids(key: str, given: Any, half: str, samples: Samples) -> Any:
    """The client of each sample of a half."""
    if callable(given):
        raise ConfigError(f"{key}: expected ids or a number, got a function; how to partition goes to partition=")
    ids = given.to_numpy(dtype=object, na_value=None) if is_series(given) else as_array(given)
    if ids.shape != (len(samples),):
        kind = {"train": "training"}.get(half, half)
        raise DataError(f"{key}: ids of shape {ids.shape} for {len(samples):,} {kind} samples; give one for each")
    for index, each in enumerate(ids.tolist() if ids.dtype.kind in "fO" else ()):
        if each is None or (isinstance(each, float) and isnan(each)):
            raise DataError(f"{key}: the id of sample {index} is {each}; every sample needs a client")
    ids = ids.astype(np.str_)
    if samples.groups is not None and not np.array_equal(ids, samples.groups):
        raise ConfigError(f"{key}: are not the third entry of {half}, which names them too; leave out one of the two")
    return ids


def _keys(inputs: Any, target: Any, clients: Any) -> dict[str, Any]:
    """What the parts of items are called, where they are dicts: fields of a `Reader`."""
    if inputs is None and target is None:
        return {}
    several = [inputs] if isinstance(inputs, str) else list(inputs or [])
    if not several or not all(isinstance(key, str) for key in (*several, target)):
        raise ConfigError(f"inputs, target: name the keys of items, both; got inputs={inputs!r}, target={target!r}")
    own = inputs if isinstance(inputs, str) else tuple(several)
    return {"inputs": own, "target": target, "client": clients if isinstance(clients, str) else None}


def _samples(reader: Reader) -> Samples:
    """Samples from whatever a person may give."""
    where, given, moment = reader.where, reader.dataset, BEGINNING if reader.where == "train" else None
    if is_map_style(given):
        items = read_items(reader, moment)
        check_samples(where, items)
        return items
    advice = "; of a table, Task.from_frame makes a task" if is_frame(given) else ""
    if isinstance(given, Mapping):
        advice = f"; give one of its parts: {', '.join(map(str, given))}"
    samples = as_samples(where, given, "(inputs, targets), Samples or a Dataset", advice)
    if not (reader.transform or reader.scored or reader.fresh):
        return samples
    pairs = [(map_arrays(itemgetter(i), samples.inputs), samples.targets[i]) for i in range(len(samples))]
    return replace(read_items(replace(reader, dataset=pairs, inputs=None), moment), groups=samples.groups)


def _by_name(given: Any) -> dict[str, Metric]:
    """Metrics by name, in their order; functions bear the names that they are given."""
    if not isinstance(given, Iterable) or isinstance(given, str):
        given = [given]
    pairs = given.items() if isinstance(given, Mapping) else ((None, entry) for entry in given)
    metrics: dict[str, Metric] = {}
    for name, entry in pairs:
        metric = as_metric(entry)
        if name is not None and isinstance(metric, CallableMetric):
            metric = replace(metric, name=str(name))
        if name not in (None, metric.name):
            raise ConfigError(f"metrics: {name!r} is called {metric.name}; give it that name")
        if metric.name in metrics:
            raise ConfigError(f"metrics: two are named {metric.name}")
        metrics[metric.name] = metric
    if not metrics:
        raise ConfigError("metrics: expected at least one (the first one decides), got none")
    return metrics
