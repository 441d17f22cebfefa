"""Gradients of small models without autograd, to the same bits.

For a chain of linear layers and ReLU the backward pass is known: the products that autograd would call, with the same
arguments in the same layout, without the graph. In small models that graph takes more time than the arithmetic. Which
models qualify is read from the module; all others, and all other losses, are differentiated by autograd, which is the
reference.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ecgr.simulation.workspace import Workspace
from ecgr.tasks.losses import BCE, MSE, CrossEntropy, shaped

aten = torch.ops.aten
MEAN = 1
IGNORED = -100
"""A reduction and a class as torch's kernels are told of them; the class is the default of `cross_entropy`."""

Differentiated = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def cross_entropy(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by the outputs."""
    classes = targets.long()
    scores = torch.log_softmax(outputs, 1)
    loss, weight = aten.nll_loss_forward(scores, classes, None, MEAN, IGNORED)
    slope = aten.nll_loss_backward(torch.ones_like(loss), scores, classes, None, MEAN, IGNORED, weight)
    return loss, torch._log_softmax_backward_data(slope, scores, 1, outputs.dtype)


def bce(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by the outputs."""
    logits, truth = shaped(outputs, targets), targets.to(outputs.dtype)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
    return loss, (logits.sigmoid().sub_(truth) / logits.numel()).reshape(outputs.shape)


def mse(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and its gradient by the outputs."""
    predicted, truth = shaped(outputs, targets), targets.to(outputs.dtype)
    loss = torch.nn.functional.mse_loss(predicted, truth)
    return loss, aten.mse_loss_backward(torch.ones_like(loss), predicted, truth, MEAN).reshape(outputs.shape)


LOSSES: Mapping[type, Differentiated] = {CrossEntropy: cross_entropy, BCE: bce, MSE: mse}
"""By the exact type of a problem's loss."""


def gradients_by_hand(workspace: Workspace) -> Callable[[Tensor], Tensor] | None:
    """What sets the gradients of the workspace's model for some rows and gives their loss; None for autograd."""
    differentiated = LOSSES.get(type(workspace.problem.loss))
    layers = chain(workspace.model)
    if differentiated is None or layers is None or not _plain_run(workspace, layers):
        return None
    samples = workspace.train

    @torch.no_grad()
    def gradients(rows: Tensor) -> Tensor:
        given, targets = workspace.given(samples, rows)
        values = [given.flatten(1)]
        for layer in layers:
            last = values[-1]
            values.append(last.relu() if layer is None else nn.functional.linear(last, layer.weight, layer.bias))
        loss, slope = differentiated(values[-1], targets)
        for i in range(len(layers) - 1, first, -1):
            slope = _back(layers[i], values[i], values[i + 1], slope)
        _set(layers[first], values[first], slope)
        return loss

    first = next(i for i, layer in enumerate(layers) if layer is not None)
    return gradients


def _back(layer: nn.Linear | None, before: Tensor, after: Tensor, slope: Tensor) -> Tensor:
    """The gradient by a layer's input from that by its output; sets those of its parameters."""
    if layer is None:
        found: Tensor = aten.threshold_backward(slope, after, 0)
        return found
    _set(layer, before, slope)
    if before.stride() == (1, len(before)):  # autograd answers in the layout of the input
        return layer.weight.t().mm(slope.t()).t()
    return slope.mm(layer.weight)


def _set(layer: nn.Linear | None, before: Tensor, slope: Tensor) -> None:
    assert layer is not None
    layer.weight.grad = slope.t().mm(before)
    if layer.bias is not None:
        layer.bias.grad = slope.sum(0)


# Which models qualify


def chain(model: nn.Module) -> list[nn.Linear | None] | None:
    """The linear layers of a model in order, None for ReLU; None where it does anything else, or may.

    Flatten counts where it comes first, or does nothing.

    >>> chain(nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    [Linear(in_features=4, out_features=3, bias=True), None, Linear(in_features=3, out_features=2, bias=True)]
    >>> chain(nn.Sequential(nn.Linear(4, 3), nn.Dropout())) is None
    True
    """
    parts = list(_parts(model))
    hooked = torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]
    if hooked or not all(map(_ordinary, model.modules())):
        return None
    if any(type(part) is nn.Flatten and (part.start_dim, part.end_dim) != (1, -1) for part in parts):
        return None
    layers = [part if isinstance(part, nn.Linear) else None for part in parts if type(part) is not nn.Flatten]
    linear = [layer for layer in layers if layer is not None]
    own = [p for layer in linear for p in (layer.weight, layer.bias) if p is not None]
    everything = list(model.parameters())
    tied = len({id(p) for p in own}) < len(own)
    if not linear or tied or len(own) != len(everything) or not all(map(_ordinary_parameter, own)):
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


def _plain_run(workspace: Workspace, layers: list[nn.Linear | None]) -> bool:
    """Whether inputs are rows of numbers for the first layer, and targets one for each output, or a class."""
    inputs, targets = workspace.train.inputs, workspace.train.targets
    if workspace.experiment.run.precision != "float32" or not isinstance(inputs, Tensor) or inputs.ndim < 2:
        return False
    if not (inputs.is_floating_point() or workspace.problem.mean):
        return False
    if inputs.ndim > 2 and type(next(_parts(workspace.model))) is not nn.Flatten:
        return False
    if type(workspace.problem.loss) is CrossEntropy:
        return targets.ndim == 1
    outputs = [layer for layer in layers if layer is not None][-1].out_features
    return targets.numel() == len(targets) * outputs
