"""What of a model is trained, what stays as it is, and the features of a frozen body, computed once.

A module without a trainable parameter is frozen: it is in eval mode while the others train, so its BatchNorm keeps its
statistics and its dropout is off, and its buffers are never sent. One that has buffers and no parameters is frozen
where it comes before everything that is trained. Parameters that a user froze otherwise change no module's mode.

Training the head on the features of a frozen body costs what a small model costs. The head is the smallest part of a
model that holds all that is trained, with what follows it where the parts are a ``nn.Sequential``; the features are
what it is called with. That the head gives the model's outputs from them, to the bit, is checked on every sample; that
the body does the same in training, on two. Where it does not, the whole model is trained.

Features are kept in memory and in the cache folder, by a hash of the body's tensors and code and of the inputs. Batches
have one size, so that a sample's features do not depend on its neighbours: a site finds those of the simulation.
"""

import json
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecgr._version import __version__
from ecgr.code import code_of
from ecgr.core.stores import free_memory, gigabytes
from ecgr.core.vectors import ParamSpec, read_buffers, write_buffers
from ecgr.errors import ConfigError, EnvironmentFault, refused
from ecgr.files import write_atomically
from ecgr.simulation.engines import one_thread
from ecgr.simulation.workspace import Feed, Held
from ecgr.tasks.data import Dataset
from ecgr.tasks.data.sets import cache_folder
from ecgr.tasks.samples import Array, Items, Samples, named_arrays

HEAD = "head"
ROWS = 32
FORMAT = 1  # raise it when features change
KEPT = 4
"""Arrays of features that stay in memory: the two halves of two problems."""
_held: OrderedDict[str, Array] = OrderedDict()


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """The frozen part of a model.

    Attributes:
        modules: the names of the outermost frozen modules.
        whole: the model with all its parts; a worker has none.
    """

    modules: tuple[str, ...]
    whole: nn.Module | None = None

    @classmethod
    def of(cls, model: nn.Module) -> "Frozen":
        """As the parameters' ``requires_grad`` says."""
        names = [name for name, module in model.named_modules() if name and _is_frozen(model, name, module)]
        return cls(tuple(name for name in names if not _within(name.rpartition(".")[0], names)), model)

    def train(self, model: nn.Module) -> None:
        """Training mode for all that is not frozen; ``model`` is the whole or its head."""
        model.train()
        for name, module in model.named_modules():
            if name in self.modules:
                module.eval()

    def moving(self, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The buffers that training may change."""
        return {name: buffer for name, buffer in buffers.items() if not _within(name, self.modules)}

    def state(self, spec: ParamSpec, params: Tensor, buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The state dict of the whole model."""
        whole = deepcopy(self.whole)
        assert whole is not None, "a worker has no whole model"
        spec.write(params, whole)
        write_buffers(buffers, whole)
        held = ((name, value) for name, value in whole.state_dict().items() if isinstance(value, Tensor))
        return {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in held}


def freeze(model: nn.Module, trainable: Any) -> None:
    """Have some parameters trained: ``"head"``, those that match a pattern, or that a function (name, parameter) picks.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> freeze(model, "head")
    >>> [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    ['2.weight', '2.bias']
    """
    pattern = f"{head_of(model)}*" if trainable == HEAD else trainable
    pick = trainable if callable(trainable) else lambda name, _: fnmatchcase(name, pattern)
    for name, parameter in model.named_parameters():
        with refused(f"model.trainable: failed at {name}"):
            parameter.requires_grad_(bool(pick(name, parameter)))
    if not trains(model):
        there = shorten(", ".join(name for name, _ in model.named_parameters()), 300, placeholder=" …")
        given = getattr(trainable, "__name__", trainable)
        raise ConfigError(f"model.trainable: {given!r} picks no parameter, so nothing is trained; there are {there}")


def head_of(model: nn.Module) -> str:
    """The prefix of the last part's parameters: of the last child that has any, below modules that only hold one."""
    prefix = ""
    while held := [(name, child) for name, child in model.named_children() if any(True for _ in child.parameters())]:
        prefix, model = f"{prefix}{held[-1][0]}.", held[-1][1]
        if len(held) > 1:
            break
    return prefix


def _is_frozen(model: nn.Module, name: str, module: nn.Module) -> bool:
    own = list(module.parameters())
    if own or not list(module.buffers()):
        return bool(own) and not trains(module)
    here = (each for each, other in model.named_modules() if each == name or trains(other, inside=False))
    return bool(next(here) == name)


def trains(module: nn.Module, *, inside: bool = True) -> bool:
    """Whether one of its parameters is trained; of its very own ones, if not ``inside``."""
    return any(parameter.requires_grad for parameter in module.parameters(recurse=inside))


def _within(name: str, modules: Sequence[str]) -> bool:
    """Whether a name is one of ``modules`` or lies within one."""
    return any(name == each or name.startswith(f"{each}.") for each in modules)


# Features of the frozen part


class Whole(Exception):
    """Why the whole model has to be trained."""


@dataclass(frozen=True, slots=True)
class Split:
    """A model in two.

    Attributes:
        head: what is trained, under the names that its parameters have in the model.
        entry: the first module of it, whose input are the features.
    """

    head: nn.Module
    entry: nn.Module

    @classmethod
    def of(cls, model: nn.Module) -> "Split":
        path: list[str] = []
        module = model
        while not trains(module, inside=False):
            trained, names = [name for name, child in module.named_children() if trains(child)], list(module._modules)
            if len(trained) > 1 or (type(module) is nn.Sequential and trained[0] != names[-1]):
                break
            path, module = [*path, trained[0]], module.get_submodule(trained[0])
        entry = head = module
        if type(module) is nn.Sequential:
            first = names.index(trained[0])
            entry, head = module[first], module[first:]
        if not path and (entry is head or first == 0):
            raise Whole("what is trained is all over the model")
        for name in reversed(path):
            head = nn.Sequential(OrderedDict({name: head}))
        return cls(head, entry)

    def features(self, feed: Feed, inputs: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What the head is called with for some rows, and what the model gives."""
        seen: list[Any] = []

        def look(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            alone = len(args) == 1 and not kwargs and isinstance(args[0], Tensor)
            seen.append(args[0].detach().clone() if alone else None)

        handle = self.entry.register_forward_pre_hook(look, with_kwargs=True)
        try:
            outputs = feed.outputs(inputs, rows)
        finally:
            handle.remove()
        if len(seen) != 1 or seen[0] is None or len(seen[0]) != len(rows):
            raise Whole("the head is not called once with one tensor, a row for each sample")
        return seen[0], outputs


def on_features(
    model: nn.Module, frozen: Frozen, dataset: Dataset, make: Any, device: str
) -> tuple[nn.Module, Dataset]:
    """The head and the features of all samples; raises `Whole` where the whole model has to be trained."""
    if isinstance(dataset.train.inputs, Items):
        raise Whole("training samples are read anew at every epoch (cache=False)")
    split = Split.of(model)
    names = read_buffers(split.head).keys()
    if ParamSpec.of(split.head) != ParamSpec.of(model) or names != frozen.moving(read_buffers(model)).keys():
        raise Whole("the body has buffers that training may change")
    with torch.no_grad(), one_thread(), torch.random.fork_rng(devices=[]):
        _check_training(deepcopy(model), frozen, dataset)
        model.to(device).eval()
        feed = Feed(model, dataset.mean, dataset.std)
        about, compute = _about(model, split, make, dataset, device), partial(_computed, split, feed)
        train, test = _mapped(dataset.train, about, compute), _mapped(dataset.test, about, compute)
        server = None if dataset.server is None else _mapped(dataset.server, about, compute)
        model.cpu()
    return split.head, replace(dataset, train=train, test=test, server=server, mean=(), std=())


def _mapped(samples: Samples, about: str, compute: Callable[[Samples], Array]) -> Samples:
    """Samples with features in the place of their inputs, computed if neither memory nor disk has them."""
    digest = sha256(about.encode())
    for name, array in named_arrays(samples.inputs):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    key = digest.hexdigest()
    found = _held.pop(key, None)
    _held[key] = found if found is not None else _on_disk(key, partial(compute, samples))
    while len(_held) > KEPT:
        _held.popitem(last=False)
    return replace(samples, inputs=_held[key])


def _check_training(model: nn.Module, frozen: Frozen, dataset: Dataset) -> None:
    """The body must do in training what it does when it is scored: nothing random, nothing by batch."""
    split = Split.of(model)
    feed, inputs = Feed(model, dataset.mean, dataset.std), Held.of(dataset.train).open().inputs
    rows = torch.arange(min(2, len(dataset.train)))
    model.eval()
    scored, others = (split.features(feed, inputs, each)[0] for each in (rows, torch.zeros_like(rows)))
    frozen.train(model)
    before = _generators()
    with refused("model: its forward pass fails in training"):
        trained = split.features(feed, inputs, rows)[0]
    if not torch.equal(trained, scored) or _generators() != before:
        raise Whole("what comes before it is not the same in training, as with dropout; put that into the head")
    if not torch.allclose(others[0], scored[0], rtol=1e-3, atol=1e-4):
        raise Whole("what comes before it looks at the whole batch")


def _generators() -> tuple[Any, ...]:
    """The state of everything that a forward pass may draw from."""
    drawn = str(np.random.get_state(legacy=False))  # noqa: NPY002  # a user's module may draw from it
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), drawn


def _computed(split: Split, feed: Feed, samples: Samples) -> Array:
    """The features of all samples, in batches of one size."""
    inputs, count, found = Held.of(samples).open().inputs, len(samples), list[Tensor]()
    for rows in torch.split(torch.arange(-(-count // ROWS) * ROWS).clamp(max=count - 1), ROWS):
        features, outputs = split.features(feed, inputs, rows)
        if not torch.equal(split.head(features), outputs):
            raise Whole("the model does more with its outputs than the head")
        if not found and (needed := count * features[0].nbytes) > free_memory() // 3:
            raise Whole(f"the features would take {gigabytes(needed)} of memory")
        found.append(features.cpu() if features.dtype == torch.float64 else features.cpu().float())
    return torch.cat(found)[:count].numpy()


def _about(model: nn.Module, split: Split, make: Any, dataset: Dataset, device: str) -> str:
    """What decides the features of an input: the body's tensors, and all code that may be in it."""
    code, own = code_of(make), {id(tensor) for tensor in (*split.head.parameters(), *split.head.buffers())}
    digest = sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if id(tensor) not in own:
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    versions = {"ecgr": __version__, "torch": torch.__version__, **code.packages}
    scale = [dataset.mean, dataset.std, torch.device(device).type]
    return json.dumps([FORMAT, ROWS, digest.hexdigest(), code.pieces, versions, scale, repr(model)])


def _on_disk(key: str, make: Callable[[], Array]) -> Array:
    """The features of this key from the cache folder; made and kept there where it has none, or damaged ones."""
    from filelock import FileLock  # needed for features only
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save

    path = cache_folder() / f"features-{key[:32]}.safetensors"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            try:
                with safe_open(path, "numpy") as file:
                    found: Array = file.get_tensor("features")
                    if (file.metadata() or {}).get("sha256") == sha256(found.data).hexdigest():
                        return found
            except (OSError, SafetensorError):
                pass
            found = make()
            content = save({"features": found}, metadata={"sha256": sha256(found.data).hexdigest()})
            write_atomically(path, content, durable=False)
            return found
    except (OSError, EnvironmentFault):  # nothing can be kept there
        return make()
