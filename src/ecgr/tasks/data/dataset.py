"""What a data set is once it is loaded: samples, and what a model for them must know. Needs numpy, not torch.

Images stay uint8 (N, channels, height, width), as they come from disk; training normalises each batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ecgr.errors import ConfigError, DataError
from ecgr.streams import stream
from ecgr.tasks.losses import Loss
from ecgr.tasks.metrics import Metric
from ecgr.tasks.samples import Samples, check_samples, first_wrong, joined

Share = Annotated[float, Field(gt=0, lt=1)]
SplitSeed = Annotated[int, Field(ge=0)]

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Channels = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a run's record says of its data, whose samples may have been forgotten.

    Attributes:
        classes: class names; empty where targets are not classes.
        files: SHA-256 of what was read, by file name.
        notes: what a reader should know.
    """

    classes: tuple[str, ...]
    files: Mapping[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Training and test samples of one problem.

    Attributes:
        shape: what a model for them must know: ``{"channels": 1, "classes": 10}`` of images, ``{"features": 13,
            "outputs": 1}`` of tables, ``{"vocabulary": 65, "classes": 65, "length": 80}`` of text.
        loss: the loss that goes with its targets, by its name in `ecgr.tasks.losses.LOSSES` or itself.
        metrics: what to judge by, names in `ecgr.tasks.metrics.METRICS` or metrics themselves; the first one decides.
        classes: class names, where targets are classes: label i is ``classes[i]``.
        mean: per channel, of images scaled to [0, 1]: a batch of uint8 images is normalised by
            ``(x / 255 - mean) / std``; empty where inputs are used as they are.
        std: per channel, likewise.
        files: SHA-256 of what was read, by file name: goes into the run's record.
        notes: what a reader of the record should know, such as "reduced: 10,000 of 50,000 images".
        status: how it compares with the official set, see `ecgr.tasks.data.Report`.
        server: labelled samples that the server has, and no client.
        held: which training samples were taken away to be scored on (`hold_out`), among all that there were.
    """

    train: Samples
    test: Samples
    shape: Mapping[str, int]
    loss: str | Loss = "cross_entropy"
    metrics: tuple[str | Metric, ...] = ("accuracy",)
    classes: tuple[str, ...] = ()
    mean: Channels = ()
    std: Channels = ()
    files: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    status: str = "whole"
    held: NDArray[np.bool_] | None = None
    server: Samples | None = None

    def __post_init__(self) -> None:
        halves = {"train": self.train, "test": self.test} | ({} if self.server is None else {"server": self.server})
        for name, samples in halves.items():
            check_samples(name, samples)
            images, channels = samples.inputs, len(self.mean)
            if channels and (images.ndim != 4 or images.dtype != np.uint8 or images.shape[1] != channels):
                expected = f"uint8 (N, {channels}, height, width)"
                raise DataError(f"{name}: images must be {expected}, got {images.dtype} {images.shape}")
            if self.classes:
                check_labels(name, samples.targets, len(self.classes))

    @property
    def provenance(self) -> Provenance:
        return Provenance(self.classes, self.files, self.notes)


def image_dataset(
    train: Samples, test: Samples, classes: tuple[str, ...], mean: Channels, std: Channels, **described: Any
) -> Dataset:
    """A data set of images in classes."""
    shape = {"channels": len(mean), "classes": len(classes)}
    return Dataset(train, test, shape, classes=classes, mean=mean, std=std, **described)


def input_shape(inputs: Any) -> dict[str, int]:
    """What a model must know of inputs: of (N, C, H, W) the channels, of whole (N, L) the tokens, else the features.

    Of several inputs those called ``tokens`` count; of other ones there is nothing to say.

    >>> input_shape(np.zeros((5, 3))), input_shape({"tokens": np.array([[1, 4]]), "mask": np.ones((1, 2))})
    ({'features': 3}, {'vocabulary': 5, 'length': 2})
    """
    array = inputs.get("tokens") if isinstance(inputs, dict) else inputs
    if not isinstance(array, np.ndarray):
        return {}
    if array.ndim == 4:
        return {"channels": array.shape[1]}
    if array.ndim == 2 and array.dtype.kind in "iu":
        return {"vocabulary": int(array.max()) + 1, "length": array.shape[1]}
    return {"features": int(np.prod(array.shape[1:]))}


Kind = Literal["auto", "binary", "classes", "numbers"]
DEFAULTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "binary": ("bce", ("auc", "accuracy")),
    "labels": ("bce", ("auc", "macro_f1")),
    "classes": ("cross_entropy", ("accuracy",)),
    "numbers": ("mse", ("r2", "mae")),
    "tokens": ("cross_entropy", ("accuracy", "perplexity")),
}
"""Loss and metrics by the kind of target; the first metric decides."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets as numbers, and what a model and a record must know of them."""

    kind: str
    values: NDArray[Any]
    shape: Mapping[str, int]
    classes: tuple[str, ...] = ()

    def dataset(self, train: Samples, test: Samples, shape: Mapping[str, int], **described: Any) -> Dataset:
        """A data set with the loss and the metrics that go with them; ``shape`` is what inputs tell."""
        loss, metrics = DEFAULTS[self.kind]
        shape = {**shape, **self.shape}
        return Dataset(train, test, shape, loss=loss, metrics=metrics, classes=self.classes, **described)


def array_targets(where: str, values: NDArray[Any], kind: Kind) -> Targets:
    """The targets of an array: whole numbers are classes (0 and 1: no and yes; in several columns: labels)."""
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2) or not len(values):
        raise DataError(f"{where}: targets are {values.dtype} {values.shape}; give numbers, (N,) or (N, columns)")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    whole = values.dtype.kind in "biu"
    zero_or_one = bool(((values == 0) | (values == 1)).all())
    if kind == "numbers" or (kind == "auto" and not whole):
        return Targets("numbers", values.astype(np.float32), {"outputs": values.shape[1] if values.ndim == 2 else 1})
    if values.ndim == 2 or kind == "binary" or (kind == "auto" and zero_or_one):
        if found := first_wrong("targets", values, (values != 0) & (values != 1)):
            raise DataError(f"{where}: {found}; yes is 1, no is 0")
        if values.ndim == 2:
            return Targets("labels", values.astype(np.int64), {"outputs": values.shape[1]})
        return binary_targets(values == 1, ("0", "1"))
    if found := first_wrong("targets", values, (values < 0) | (values != np.floor(values))):
        raise DataError(f"{where}: {found}; classes are whole numbers from 0")
    count = int(values.max()) + 1
    return Targets("classes", values.astype(np.int64), {"classes": count}, tuple(map(str, range(count))))


def binary_targets(yes: NDArray[np.bool_], names: tuple[str, ...]) -> Targets:
    """Yes or no."""
    return Targets("binary", yes.astype(np.int64), {"outputs": 1}, names)


class DatasetSource(Protocol):
    """An entry of ``DATASETS``: a frozen dataclass, its own configuration, that can load what it names."""

    def load(self) -> Dataset:
        """Read and check the data set."""


def check_labels(where: str | PathLike[str], labels: NDArray[np.integer], classes: int) -> None:
    """Raise a `DataError` that names the index and the value of the first label that is out of range."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        first = int(wrong[0])
        raise DataError(f"{where}: label {labels.flat[first]} at index {first}; labels go from 0 to {classes - 1}")


BINS = 10
MOST_STRATA = 1000


def strata(targets: NDArray[np.generic]) -> Labels:
    """What stands for a sample's class where samples are partitioned or a share of them is drawn.

    Whole numbers are their own classes, and so is each combination of several labels; numbers fall into ten equally
    filled bins; what has too many kinds to be of a kind (sequences) is all of one.

    >>> strata(np.array([2, 0, 1])).tolist(), strata(np.array([0.0, 1.0, 1.0])).tolist()
    ([2, 0, 1], [0, 1, 1])
    >>> strata(np.array([[0, 1], [0, 0], [0, 1]])).tolist()
    [1, 0, 1]
    >>> strata(np.linspace(0, 1, 20)).tolist() == [i // 2 for i in range(20)]
    True
    """
    rows = targets.reshape(len(targets), -1)
    values = np.asarray(rows[:, 0] if rows.shape[1] == 1 else rows)
    whole = values.dtype.kind in "biu" or bool((values == np.floor(values)).all())
    if values.ndim == 1 and values.dtype.kind in "iu":
        return values.astype(np.int64)
    if whole:
        kinds, inverse = np.unique(values, axis=0, return_inverse=True)
        if len(kinds) <= MOST_STRATA:
            return inverse.reshape(-1).astype(np.int64)
    if values.ndim > 1:
        return np.zeros(len(values), dtype=np.int64)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return (ranks * BINS // len(values)).astype(np.int64)


def stratify(
    dataset: Dataset, fraction: float, rng: np.random.Generator, test_fraction: float | None = None
) -> Dataset:
    """A share of the training and test samples with the class proportions kept, at least one sample a class.

    Of the test samples the same share as of the training samples, unless ``test_fraction`` says another.
    """
    of_test = fraction if test_fraction is None else test_fraction
    for key, value in (("fraction", fraction), ("test_fraction", of_test)):
        if not 0 < value <= 1:
            raise ConfigError(f"data.{key}: {value} is not in (0, 1]")
    if fraction == of_test == 1:
        return dataset
    train, test = dataset.train, dataset.test
    if fraction < 1:
        train = train.take(np.sort(drawn(train.targets, fraction, rng, least=1)))
    if of_test < 1:
        test = test.take(np.sort(drawn(test.targets, of_test, rng, least=1)))
    shares = f"fraction {fraction}" if test_fraction is None else f"fraction {fraction}, test fraction {of_test}"
    counts = f"{len(train)} of {len(dataset.train)} training and {len(test)} of {len(dataset.test)} test samples"
    return replace(dataset, train=train, test=test, notes=(*dataset.notes, f"{shares}: {counts}"))


def drawn(targets: NDArray[np.generic], share: float, rng: np.random.Generator, least: int = 0) -> Labels:
    """The indices of a share of the samples, drawn class by class, at least ``least`` of each."""
    labels = strata(targets)
    members = (rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels))
    return np.concatenate([each[: max(least, round(len(each) * share))] for each in members])


def hold_out(dataset: Dataset, share: float, rng: np.random.Generator) -> Dataset:
    """Part of the training samples as test samples, the class proportions kept: what nobody chooses by is left alone.

    >>> labels = np.arange(20) % 2
    >>> samples = Samples(np.zeros((20, 1)), labels)
    >>> held = hold_out(Dataset(samples, samples, {}), 0.2, np.random.default_rng(0))
    >>> len(held.train), sorted(held.test.targets.tolist())
    (16, [0, 0, 1, 1])
    """
    held = np.zeros(len(dataset.train), dtype=bool)
    held[drawn(dataset.train.targets, share, rng)] = True
    if not held.any() or held.all():
        raise ConfigError(f"data.validation: {share} of {len(held)} training samples leaves nothing on one side")
    note = f"validation {share}: scored on {held.sum()} training samples held out, not on the test samples"
    train, test = apart(dataset.train, held)
    return replace(dataset, train=train, test=test, notes=(*dataset.notes, note), held=held)


def set_aside(dataset: Dataset, count: int, rng: np.random.Generator) -> Dataset:
    """Training samples, drawn at random, for the server: no client has them."""
    if dataset.server is not None:
        raise ConfigError("data.server_samples: the task brings the server's samples itself; leave it out")
    if count >= len(dataset.train):
        raise ConfigError(f"data.server_samples: {count} of {len(dataset.train)} training samples leaves clients none")
    chosen = np.isin(np.arange(len(dataset.train)), rng.permutation(len(dataset.train))[:count])
    rest, server = apart(dataset.train, chosen)
    note = f"server samples: {count} of the training samples are the server's, and no client's"
    return replace(dataset, train=rest, server=server, notes=(*dataset.notes, note))


def redrawn(dataset: Dataset, seed: int) -> Dataset:
    """All samples split anew, as many to test with as before: of each client's where it is known whose they are.

    >>> half = Samples(np.arange(5.0)[:, None], np.zeros(5, dtype=np.int64))
    >>> again = redrawn(Dataset(half, half, {}), seed=1)
    >>> len(again.train), len(again.test)
    (5, 5)
    """
    train, test = dataset.train, dataset.test
    known = [half.groups is not None for half in (train, test)]
    if any(known) and not (all(known) and np.isin(test.groups, train.groups).all()):
        raise ConfigError("data.redraw: not every test sample is of a client that trains; leave data.redraw out")
    every = joined(train, test)
    train, test = parted(every, len(test) / len(every), seed)
    return replace(dataset, train=train, test=test)


def parted(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples]:
    """Samples to train on and to test on: ``share`` of each client's, where it is known whose they are."""
    clients = np.full(len(samples), "") if samples.groups is None else samples.groups
    return apart(samples, holdout(clients, samples.targets, share, seed))


def apart(samples: Samples, chosen: NDArray[np.bool_]) -> tuple[Samples, Samples]:
    """The samples that are not chosen, and those that are."""
    return samples.take(np.flatnonzero(~chosen)), samples.take(np.flatnonzero(chosen))


def holdout(clients: NDArray[np.str_], targets: NDArray[Any], share: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are for testing: ``share`` of each client's rows, every class in its proportion to within one row.

    Never all: a client keeps a row to train on. Its rows are shuffled, sorted by class (numbers by tenths) and marked
    at even distances. The shuffle depends on the seed and on the client's name alone, so a client that holds only its
    own rows finds the same split.

    >>> clients = np.repeat(["a", "b"], [10, 5])
    >>> marked = holdout(clients, np.arange(15) % 2, 0.2, seed=0)
    >>> marked[:10].sum(), marked[10:].sum()
    (np.int64(2), np.int64(1))
    """
    marked = np.zeros(len(clients), dtype=np.bool_)
    for client in np.unique(clients):
        rows = stream(seed, f"split {client}").permutation(np.flatnonzero(clients == client))
        rows = rows[np.argsort(strata(targets[rows]), kind="stable")]
        marks = np.minimum(np.floor(np.arange(1, len(rows) + 1) * share + 0.5), len(rows) - 1)
        marked[rows[np.diff(marks, prepend=0) > 0]] = True
    return marked
