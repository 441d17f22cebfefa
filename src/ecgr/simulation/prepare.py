"""From an experiment and its data to a problem that can be trained, or one line that says why it cannot.

Everything is tried once, before anything is written or any process started: the model is built and given two samples,
the loss and the metrics are computed on what it gives.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecgr.config.experiment import OWN, Experiment
from ecgr.config.partition import divided, draws_split, held_by_each
from ecgr.errors import ConfigError, DataError, EcgrError, refused
from ecgr.simulation.client import batch_sizes
from ecgr.simulation.engines import SerialEngine, results
from ecgr.simulation.frozen import Frozen, Whole, freeze, on_features
from ecgr.simulation.heads import check_head
from ecgr.simulation.rounds import round_jobs, start
from ecgr.simulation.server import check_server_steps, notes_on, refuse_buffers
from ecgr.simulation.workspace import Feed, Held, Problem, seeded
from ecgr.streams import stream, torch_seed
from ecgr.tasks.data import Dataset
from ecgr.tasks.losses import Loss, as_loss, check_targets, evaluation_of, softmax_note
from ecgr.tasks.metrics import Array, Metric, are_class_scores, as_metric
from ecgr.tasks.partition import Groups, Partition
from ecgr.tasks.samples import Samples

BUFFER_DTYPES = (torch.float16, torch.float32, torch.float64)
PARAMETER_DTYPES = (*BUFFER_DTYPES, torch.bfloat16)


def prepare(experiment: Experiment, dataset: Dataset, device: str = "cpu") -> Problem:
    """Take the experiment's share of ``dataset``, partition it, and refuse what cannot be trained.

    A client by itself is scored on its own test samples, where the task knows whose they are.
    """
    start = starting_point(experiment, dataset, device)
    dataset, partition, owners = divided(experiment, start.dataset)
    of_groups = isinstance(experiment.partitioner, Groups) and owners is not None
    if experiment.partition.alone is not None and experiment.data.score != OWN and of_groups:
        rows = np.flatnonzero(owners == 0)
        own = replace(start, dataset=replace(dataset, test=dataset.test.take(rows)))
        with suppress(EcgrError):  # a metric may have no value there; whatever else is wrong is said below
            return _problem(experiment, own, partition, np.zeros(len(rows), dtype=np.int64), device)
    return _problem(experiment, replace(start, dataset=dataset), partition, owners, device)


def prepare_site(experiment: Experiment, dataset: Dataset, client: int, device: str = "cpu") -> Problem:
    """As `prepare`, for one client's site: all of ``dataset`` belongs to it."""
    if experiment.data.fraction != 1 or experiment.data.test_fraction not in (None, 1):
        raise ConfigError("data.fraction: a site trains on all that it holds; leave data.fraction at 1")
    if experiment.data.redraw and not draws_split(experiment.source):
        raise ConfigError("data.redraw: a site's test samples are its own; leave data.redraw out")
    nothing = np.empty(0, dtype=np.int64)
    start = starting_point(experiment, dataset, device)
    dataset, owners = start.dataset, None
    own = Partition((np.arange(len(dataset.train)),))
    if experiment.data.score == OWN:
        dataset, own, _ = held_by_each(experiment, dataset, own, None, first=client)
        owners = np.full(len(dataset.test), client)
    whose = Partition((*(nothing for _ in range(client)), *own))
    return _problem(experiment, replace(start, dataset=dataset), whose, owners, device, whole=False)


def prepare_server(
    experiment: Experiment,
    shape: Mapping[str, int],
    loss: str,
    metrics: Sequence[str],
    sizes: Sequence[int],
    test: Samples | None = None,
    server: Samples | None = None,
) -> Problem:
    """A server's problem: no training samples, only what the clients say of theirs; perhaps samples of its own."""
    nothing = Samples(np.empty((0, 1), dtype=np.float32), np.empty(0, dtype=np.int64))
    held, model = Held.of(nothing), build_model(experiment, shape)
    # Only how many there are is asked of these indices: they take no memory, however many a site claims.
    counted = tuple(np.broadcast_to(np.int64(0), size) for size in sizes)
    problem = Problem(
        experiment=experiment.without_data(),
        model=model,
        loss=experiment.loss or as_loss(loss),
        metrics=tuple(as_metric(metric) for metric in metrics),
        train=held,
        test=held if test is None else Held.of(test),
        partition=Partition(counted),
        frozen=None if experiment.model.trainable is None else Frozen.of(model),
        server=None if server is None else Held.of(server),
    )
    check_head(problem)
    check_server_steps(problem)
    return problem


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """What is trained, and on what: a model and a data set, or the head of one and the features of its samples."""

    model: nn.Module
    dataset: Dataset
    frozen: Frozen | None = None
    notes: tuple[str, ...] = ()


def starting_point(experiment: Experiment, dataset: Dataset, device: str = "cpu") -> Start:
    """The experiment's model and data; where the body is frozen, the head and the features, each computed once."""
    chosen, model = experiment.model, build_model(experiment, dataset.shape)
    if chosen.trainable is None:
        return Start(model, dataset)
    _trial_outputs(model, dataset, Held.of(dataset.test))
    frozen, make = Frozen.of(model), chosen.make
    if not frozen.modules:
        return Start(model, dataset, frozen)
    try:
        return Start(*on_features(model, frozen, dataset, make, checked_device(device)), frozen)
    except Whole as why:
        return Start(model, dataset, frozen, (f"the whole model runs at every step, features are not kept: {why}",))


def _problem(
    experiment: Experiment,
    start: Start,
    partition: Partition,
    owners: NDArray[np.int64] | None,
    device: str,
    *,
    whole: bool = True,
) -> Problem:
    """``whole``: whether these are all test samples, on which every metric must have a value."""
    model, dataset = start.model, start.dataset
    loss = experiment.loss or as_loss(dataset.loss)
    metrics = tuple(as_metric(metric) for metric in experiment.data.metrics or dataset.metrics)
    train, test = Held.of(dataset.train), Held.of(dataset.test)
    outputs = _trial_outputs(model, dataset, test)
    if experiment.run.precision != "float32":
        _trial_outputs(deepcopy(model).to(checked_device(device)), dataset, test, experiment.run.precision)
    server = None if dataset.server is None else Held.of(dataset.server)
    if server is not None:
        _trial_outputs(model, dataset, server, what="the server's samples")
    _check_loss(loss, dataset, outputs)
    if whole:
        _check_metrics(metrics, dataset.test.targets, outputs)
    problem = Problem(
        experiment=experiment.without_data(),
        model=model,
        loss=loss,
        metrics=metrics,
        train=train,
        test=test,
        classes=_classes(dataset, outputs),
        mean=dataset.mean,
        std=dataset.std,
        partition=partition,
        test_clients=owners,
        device=checked_device(device),
        notes=(
            *start.notes,
            *filter(None, [softmax_note(loss, outputs)]),
            *notes_on(experiment, len(partition)),
        ),
        frozen=start.frozen,
        server=server,
    )
    assert problem.spec.size  # a part that names no layer of this model is refused here
    _check_single_sample_batches(problem)
    check_head(problem)
    if whole:  # a site does not have what the server has
        check_server_steps(problem)
    return problem


def build_model(experiment: Experiment, shape: Mapping[str, int]) -> nn.Module:
    """The experiment's model with the initial weights of its seed."""
    with seeded(torch_seed(experiment.run.seed, "weights")), refused("model: building it failed"):
        model = experiment.model.build(shape)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model: expected a function that returns a torch.nn.Module, got {type(model).__name__}")
    if experiment.model.trainable is not None:
        freeze(model, experiment.model.trainable)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("model: has no trainable parameter, so there is nothing to train")
    _check_dtypes(model)
    refuse_buffers(experiment, model)
    with refused("model: cannot be copied", "; leave locks, open files and the like out of the module"):
        deepcopy(model)
    return model


def _check_dtypes(model: nn.Module) -> None:
    """Refuse what cannot be averaged, checked and stored exactly."""
    for kind, tensors, allowed in (
        ("parameter", model.named_parameters(), PARAMETER_DTYPES),
        ("buffer", model.named_buffers(), BUFFER_DTYPES),
    ):
        for name, tensor in tensors:
            inexact = tensor.is_floating_point() or tensor.is_complex()
            if inexact and tensor.dtype not in allowed:
                raise ConfigError(f"model: {kind} {name!r} is {_listed([tensor.dtype])}; give {_listed(allowed)}")


def _listed(dtypes: Sequence[torch.dtype]) -> str:
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)


def _mixed(model: nn.Module) -> str:
    """The likely cause of a failed forward pass: parameters of several dtypes, each with its first name."""
    found: dict[torch.dtype, str] = {}
    for name, parameter in model.named_parameters():
        found.setdefault(parameter.dtype, name)
    if len(found) < 2:
        return ""
    which = ", ".join(f"{name} is {_listed([dtype])}" for dtype, name in found.items())
    return f"its parameters have several dtypes ({which}), give one, as by model.float(): "


def _trial_outputs(
    model: nn.Module, dataset: Dataset, test: Held, precision: str = "float32", what: str = "the test samples"
) -> Tensor:
    """What the model gives for the first two test samples."""
    feed, rows = Feed(deepcopy(model).eval(), dataset.mean, dataset.std, precision), slice(0, 2)
    name, how = type(model).__name__, "" if precision == "float32" else f" in run.precision = {precision!r}"
    failure = refused(f"model: {_mixed(model)}{name} cannot take {what}{how}")
    with failure, torch.no_grad(), torch.random.fork_rng(devices=[]):
        outputs = feed.outputs(test.open().inputs, rows)
    if outputs.ndim == 0 or len(outputs) != len(test.targets[rows]):
        shape = tuple(outputs.shape)
        raise ConfigError(f"model: {name} gives outputs of shape {shape} for two samples; the samples come first")
    return outputs.float().detach()


def _check_loss(loss: Loss, dataset: Dataset, outputs: Tensor) -> None:
    for where, samples in (("train", dataset.train), ("test", dataset.test), ("server", dataset.server)):
        if samples is None:
            continue
        check_targets(loss, where, samples.targets, tuple(outputs.shape[1:]))
    targets = torch.from_numpy(dataset.test.targets[:2].copy())
    shapes = f"outputs {tuple(outputs.shape)} with targets {tuple(targets.shape)} of {targets.dtype}"
    with refused(f"loss: cannot take {shapes}"):
        value = evaluation_of(loss)(outputs.clone().requires_grad_(), targets)
    if not isinstance(value, Tensor) or value.numel() != 1:
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ConfigError(f"loss: gives {shape}, not one number; give the mean over the samples")
    if not value.requires_grad:
        raise ConfigError("loss: has no gradient; compute it from the outputs with torch alone")


def _check_metrics(metrics: Sequence[Metric], targets: Array, outputs: Tensor) -> None:
    """A metric must have a value on these targets, whatever the model: tried with random outputs."""
    drawn = stream(0, "trial").normal(size=(len(targets), *outputs.shape[1:])).astype(np.float32)
    for metric in metrics:
        with refused(f"metrics: {metric.name} cannot be computed on the {len(targets):,} test targets"):
            value = metric.value([metric.part(drawn, targets)])
        if not np.isfinite(value):
            raise DataError(
                f"metrics: {metric.name} is {value} on the {len(targets):,} test targets, whatever a model gives;"
                " choose another metric or other test samples"
            )


def _classes(dataset: Dataset, outputs: Tensor) -> int | None:
    """How many classes the targets have; None where they are something else."""
    targets = dataset.test.targets
    if targets.ndim == 1 and targets.dtype.kind in "biu" and are_class_scores(outputs.numpy(), targets[:2]):
        return int(outputs.shape[1])
    one_each = targets.size == len(targets) and outputs.numel() == len(outputs)
    binary = one_each and all(np.isin(half.targets, (0, 1)).all() for half in (dataset.train, dataset.test))
    return 2 if binary else None


def checked_device(device: str) -> str:
    """``device``, if torch can use it here."""
    with refused(f"device: {device!r} cannot be used here", "; `cpu` always can"):
        torch.empty(0, device=device)
    return device


def _check_single_sample_batches(problem: Problem) -> None:
    """A last batch of one sample breaks BatchNorm where one value per channel is left; find out before training."""
    federation = problem.experiment.federation
    for client, size in enumerate(problem.partition.sizes() if problem.trains else ()):
        if 1 in batch_sizes(size, federation.batch_size, federation.last_batch):
            what = f"federation.batch_size: client {client} ({size} samples) would end on a batch of one"
            advice = 'set federation.last_batch = "merge" or "drop"' if size > 1 else "raise partition.min_batches"
            model = deepcopy(problem.model)
            problem.set_training(model)
            with refused(f"{what}, which this model cannot take", f"; {advice}"), torch.random.fork_rng(devices=[]):
                problem.feed(model).outputs(problem.test.open().inputs, slice(0, 1))
            return


# What a site holds, tried before anything is sent: loaded, and trained for one step


def check_client(client: int, clients: int | None) -> None:
    """Refuse a number that is no client's."""
    if client < 0 or (clients is not None and client >= clients):
        raise ConfigError(f"partition-id: {client}, allowed 0 to {(clients or 1) - 1}")


def check_site(experiment: Experiment, client: int) -> dict[str, Any]:
    """Load this machine's samples as the site of ``client``, train one step on them, and say what was found."""
    check_client(client, experiment.partition.clients)
    dataset = experiment.source.load()
    problem = prepare_site(experiment, dataset, client)
    own = problem.partition.clients[client]
    batch = Partition((*problem.partition.clients[:client], own[: experiment.federation.batch_size]))
    short = replace(problem, partition=batch)
    (job,) = round_jobs(short, start(short), [client])
    ((result, _),) = results(SerialEngine(short), [job], "the step was lost")
    return {
        "files": sorted(dataset.provenance.files),
        "train": len(dataset.train),
        "test": len(dataset.test),
        "shape": dict(dataset.shape),
        "loss": type(problem.loss).__name__,
        "metrics": [metric.name for metric in problem.metrics],
        "parameters": problem.spec.size,
        "step_loss": result.train_loss,
        "step_norm": result.metrics["update_norm"],
    }
