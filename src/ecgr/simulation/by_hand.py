"""Local steps of small models without autograd, modules and optimiser objects: a few numpy calls a layer.

A step of a small model is dispatch, not arithmetic: a call of torch takes 3 to 10 microseconds, the same call of numpy
1 to 3. For a chain of linear layers and ReLU the backward pass is known, so a client's parameters, gradient and
momentum are flat vectors here, and its layers views of them. One client is trained at a time, by the same calls
wherever that is: what comes out does not depend on who else is trained, or on which engine.

Which models qualify is read from the module; all others, other losses and other optimisers are trained by the loop in
`ecgr.simulation.client`, which is the reference: the two differ by rounding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain as chains
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ecgr.algorithms.base import corrector
from ecgr.component import State
from ecgr.config.optimizers import SGD, AdamW
from ecgr.core.recorder import Steps
from ecgr.core.regulators import Plain
from ecgr.core.stores import STORES
from ecgr.simulation.workspace import Workspace, seeded
from ecgr.streams import torch_seed
from ecgr.tasks.losses import BCE, MSE, BalancedSoftmax, CrossEntropy, FedLC, FedRS, TurnedScores

if TYPE_CHECKING:
    from ecgr.simulation.client import ClientJob

Array = NDArray[np.float32]
Chain = list[nn.Linear | None]
"""The layers of a model in order, None for ReLU."""
Epoch = tuple[Tensor, list[int]]
"""The rows of an epoch in order, and the sizes of its batches."""

SMALL, SMALL_VECTOR = 2**18, 9216
"""Multiply-adds of products, and of those with a vector, for which numpy's OpenBLAS never uses a second thread."""
SPAN = 2**20
"""Numbers of samples that are made ready at once: 4 MB."""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """``a @ b`` in one thread: larger products are torch's, whose threads the engines set."""
    if a.size * b.shape[1] <= (SMALL_VECTOR if 1 in (len(a), a.shape[1], b.shape[1]) else SMALL):
        return np.matmul(a, b, out)
    into = None if out is None else torch.from_numpy(out)
    found = torch.mm(_aligned(a), _aligned(b), out=into if into is not None and _is_aligned(into) else None)
    return found.numpy() if into is None or found is into else into.copy_(found).numpy()


# On some processors MKL's products depend on where operands and results lie: they lie as torch would allocate them.


def _is_aligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % 64 == 0


def _aligned(array: Array) -> Tensor:
    given = torch.from_numpy(array)
    return given if _is_aligned(given) else given.clone()


# Losses: the sum over a batch, and the gradient of the mean by the outputs

Differentiated = Callable[[Array, Array], tuple[float, Array]]


def cross_entropy(outputs: Array, truth: Array) -> tuple[float, Array]:
    """``truth`` has a one in the column of the class."""
    scores = outputs - np.maximum.reduce(outputs, 1, keepdims=True)
    slope = np.exp(scores)
    total = np.add.reduce(slope, 1, keepdims=True)
    loss = np.add.reduce(np.log(total), None) - np.add.reduce(scores * truth, None)
    slope /= total
    slope -= truth
    slope /= len(slope)
    return float(loss), slope


def bce(logits: Array, truth: Array) -> tuple[float, Array]:
    """Of logits."""
    loss = np.add.reduce(np.logaddexp(0, logits) - logits * truth, None)
    slope = 1 / (1 + np.exp(-logits))
    slope -= truth
    slope /= slope.size
    return float(loss) / logits.shape[1], np.asarray(slope, np.float32)


def mse(predicted: Array, truth: Array) -> tuple[float, Array]:
    """Of numbers."""
    apart = predicted - truth
    return float((apart * apart).sum()) / apart.shape[1], apart * (2 / apart.size)


def turned(given: TurnedScores) -> Differentiated:
    """Cross entropy of the turned scores."""
    scale, shift = (each.float().numpy() for each in (given.scale, given.shift))

    def differentiated(outputs: Array, truth: Array) -> tuple[float, Array]:
        loss, slope = cross_entropy(outputs * scale + shift, truth)
        slope *= scale
        return loss, slope

    return differentiated


LOSSES: Mapping[type, Differentiated | None] = {
    CrossEntropy: cross_entropy, BCE: bce, MSE: mse, BalancedSoftmax: None, FedRS: None, FedLC: None,
}  # fmt: skip
"""By the exact type of a problem's loss; None where it depends on the client."""

# Optimisers: what moves the parameters by the gradient, both flat, in place

Move = Callable[[Array, Array], None]


def sgd(own: SGD, lr: float) -> Move:
    """As `torch.optim.SGD`."""
    velocity: Any = 0.0

    def move(params: Array, gradient: Array) -> None:
        nonlocal velocity
        if own.weight_decay:
            gradient = gradient + own.weight_decay * params
        velocity = own.momentum * velocity + gradient if own.momentum else gradient
        params -= lr * velocity

    return move


def adamw(own: AdamW, lr: float) -> Move:
    """As `torch.optim.AdamW` with its own betas and epsilon."""
    mean: Any = 0.0
    square: Any = 0.0
    steps = 0

    def move(params: Array, gradient: Array) -> None:
        nonlocal mean, square, steps
        steps += 1
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        params *= 1 - lr * own.weight_decay
        params -= lr / (1 - 0.9**steps) * mean / (np.sqrt(square / (1 - 0.999**steps)) + 1e-8)

    return move


OPTIMIZERS: Mapping[type, Callable[[Any, float], Move]] = {SGD: sgd, AdamW: adamw}
"""By the exact type of an experiment's optimiser."""

# A client's steps


class Trained(NamedTuple):
    """``start - end``, or the steps that led there where they were recorded; the mean loss over the samples seen."""

    update: Tensor | Steps
    loss: float


def qualifies(workspace: Workspace) -> bool:
    """Whether the clients of a workspace are trained here."""
    if workspace not in _CHAINS:
        layers = chain(workspace.model)
        _CHAINS[workspace] = layers if layers is not None and _plain_run(workspace, layers) else None
    return _CHAINS[workspace] is not None and not torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]


_CHAINS: WeakKeyDictionary[Workspace, Chain | None] = WeakKeyDictionary()


def train_by_hand(
    workspace: Workspace, job: "ClientJob", server: State, state: State, epochs: Sequence[Epoch]
) -> Trained:
    """Take the steps of a client's epochs, for workspaces that qualify."""
    experiment, start, layers = workspace.experiment, job.params, _CHAINS[workspace]
    assert layers is not None
    params, slope = start.clone().numpy(), torch.empty_like(start).numpy()
    own, slopes = (_by_layer(workspace, layers, flat) for flat in (params, slope))
    differentiated = LOSSES[type(workspace.problem.loss)] or turned(workspace.problem.loss_of(job.client))
    correct = corrector(experiment.algorithm, start, server, state)
    term = experiment.algorithm.step_term(server, state)
    after = None if term is None else (job.lr * term).numpy()
    move = OPTIMIZERS[type(experiment.optimizer)](experiment.optimizer, job.lr)
    rows, seconds, last = None, 0.0, params
    if not isinstance(experiment.regulator, Plain):
        count = sum(len(sizes) for _, sizes in epochs)
        rows, last = STORES[experiment.run.store](len(start), steps=count, like=start), params.copy()
    total, seen = 0.0, 0
    # a correction of the user's own may draw numbers; nothing else does
    seed = None if correct is None else torch_seed(experiment.run.seed, "client", job.round_index, job.client)
    with np.errstate(all="ignore"), nullcontext() if seed is None else seeded(seed):  # the server refuses what diverged
        for inputs, truth in chains.from_iterable(_batches(workspace, layers, *epoch) for epoch in epochs):
            total += _differentiate(own, slopes, inputs, truth, differentiated)
            seen += len(inputs)
            if correct is not None:
                correct(torch.from_numpy(slope), torch.from_numpy(params))
            move(params, slope)
            if after is not None:
                params -= after
            if rows is not None:
                began = perf_counter()
                row = rows.new_row(start.device)
                if row is None:
                    rows.append(torch.from_numpy(last - params))
                else:
                    np.subtract(last, params, row.numpy())
                np.copyto(last, params)
                seconds += perf_counter() - began
    end = torch.from_numpy(params)
    return Trained(start - end if rows is None else Steps(rows, start, end, workspace.spec, seconds), total / seen)


def _differentiate(
    own: list[Any], slopes: list[Any], inputs: Array, truth: Array, differentiated: Differentiated
) -> float:
    """Set the gradients for a batch; its loss, summed."""
    values = [inputs]
    for layer in own:
        if layer is None:
            values.append(np.maximum(values[-1], 0))
        else:
            weight, bias = layer
            found = product(values[-1], weight.T)
            if bias is not None:
                found += bias
            values.append(found)
    loss, slope = differentiated(values[-1], truth)
    first = next(i for i, layer in enumerate(own) if layer is not None)
    for i in range(len(own) - 1, first - 1, -1):
        if own[i] is None:
            slope *= np.sign(values[i + 1])
        else:
            weight, bias = slopes[i]
            product(slope.T, values[i], weight)
            if bias is not None:
                np.add.reduce(slope, 0, out=bias)
            if i > first:
                slope = product(slope, own[i][0])
    return loss


def _by_layer(workspace: Workspace, layers: Chain, flat: Array) -> list[tuple[Array, Array | None] | None]:
    """Each linear layer's weight and bias in a flat vector."""
    pieces = (piece.numpy() for piece in workspace.spec.views(torch.from_numpy(flat)))
    return [None if layer is None else (next(pieces), None if layer.bias is None else next(pieces)) for layer in layers]


def _batches(workspace: Workspace, layers: Chain, order: Tensor, sizes: list[int]) -> Iterator[tuple[Array, Array]]:
    """The inputs and targets of each batch, made ready many at once."""
    loss, samples = workspace.problem.loss, workspace.train
    outputs = [layer for layer in layers if layer is not None][-1].out_features
    at_once, begun = max(1, SPAN // (samples.inputs[0].numel() * sizes[0])), 0
    for first in range(0, len(sizes), at_once):
        own = sizes[first : first + at_once]
        given, targets = workspace.given(samples, order[begun : begun + sum(own)])
        begun += sum(own)
        inputs = given.flatten(1).numpy()
        if type(loss) in (BCE, MSE):
            truth = targets.float().reshape(len(targets), outputs).numpy()
        else:
            truth = np.eye(outputs, dtype=np.float32)[targets.long().numpy()]
        place = 0
        for size in own:
            yield inputs[place : place + size], truth[place : place + size]
            place += size


# Which models qualify


def chain(model: nn.Module) -> Chain | None:
    """The linear layers of a model in order, None for ReLU; None where it does anything else, or may.

    Flatten counts where it comes first, or does nothing.

    >>> chain(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    [Linear(in_features=4, out_features=3, bias=True), None, Linear(in_features=3, out_features=2, bias=True)]
    >>> chain(nn.Sequential(nn.Linear(4, 3), nn.Dropout())) is None
    True
    """
    parts = list(_parts(model))
    if not all(map(_ordinary, model.modules())):
        return None
    layers = [part if isinstance(part, nn.Linear) else None for part in parts if type(part) is not nn.Flatten]
    linear = [layer for layer in layers if layer is not None]
    own = [p for layer in linear for p in (layer.weight, layer.bias) if p is not None]
    if not own or [*map(id, own)] != [*map(id, model.parameters())] or not all(map(_ordinary_parameter, own)):
        return None
    return layers


def _parts(module: nn.Module) -> Iterator[nn.Module]:
    """What is called one after the other; nested Sequentials opened."""
    if type(module) is nn.Sequential:
        for part in module:
            yield from _parts(part)
    else:
        yield module


def _ordinary(module: nn.Module) -> bool:
    """Whether calling a module is calling what torch wrote, and nothing else."""
    own: dict[str, Any] = vars(module)
    return (
        type(module) in (nn.Sequential, nn.Linear, nn.ReLU, nn.Flatten)
        and (not isinstance(module, nn.Flatten) or (module.start_dim, module.end_dim) == (1, -1))
        and "forward" not in own
        and own.get("_compiled_call_impl") is None
        and not any(own.get(hooks) for hooks in HOOKS)
    )


def _ordinary_parameter(parameter: Any) -> bool:
    return (
        type(parameter) is nn.Parameter
        and parameter.requires_grad
        and parameter.dtype == torch.float32
        and parameter.device.type == "cpu"
        and parameter.is_contiguous()
        and not parameter._backward_hooks
        and not getattr(parameter, "_post_accumulate_grad_hooks", None)
    )


def _plain_run(workspace: Workspace, layers: Chain) -> bool:
    """Whether loss and optimiser are known, inputs rows of numbers, and targets one for each output, or a class."""
    inputs, targets, loss = workspace.train.inputs, workspace.train.targets, type(workspace.problem.loss)
    experiment, everything = workspace.experiment, sum(p.numel() for p in workspace.model.parameters())
    known = loss in LOSSES and type(experiment.optimizer) in OPTIMIZERS and experiment.run.precision == "float32"
    if not known or workspace.spec.size != everything:  # some parameters stay at the clients
        return False
    if not isinstance(inputs, Tensor) or inputs.ndim < 2:
        return False
    if not (inputs.is_floating_point() or workspace.problem.mean):
        return False
    if inputs.ndim > 2 and type(next(_parts(workspace.model))) is not nn.Flatten:
        return False
    outputs = [layer for layer in layers if layer is not None][-1].out_features
    return targets.numel() == len(targets) * outputs if loss in (BCE, MSE) else targets.ndim == 1
