"""What a method may have besides its correction, server rule and regulator: ``+part(…)`` and ``@head(…)``.

Each has a section of its own in a config. Without that section a part is off, costs nothing, and no record names it; a
section that is there is on, unless its name is ``none``. Each part has a method ``clash``, which says why an experiment
cannot have it.

`Local` and `Finetune` make a client's model its own, so it is scored on each client's own samples (``data.score =
"own"``): by layers that never leave it, and by a few steps on its own samples at the end. FedBN: "Federated Learning on
Non-IID Features via Local Batch Normalization" (Li et al., 2021) is ``local(part=norm)``; ``local(part=head)`` is the
split of FedPer (Arivazhagan et al., 2019), trained together as there.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ecgr.algorithms.heads import LDA, Ridge
from ecgr.algorithms.privacy import DP
from ecgr.component import Count, Module, Positive, component, rule
from ecgr.core.vectors import bare_model, read_buffers
from ecgr.errors import ConfigError
from ecgr.tables import Table, shown

NORM, HEAD = "norm", "head"
NORM_LAYER = re.compile(r"norm(\dd)?$", re.IGNORECASE)
"""How classes of normalisation layers are called: BatchNorm2d, GroupNorm, LayerNorm, LlamaRMSNorm."""


def clash(part: str, experiment: Any) -> str | None:
    """Why an experiment cannot have a part that makes each client's model its own."""
    if experiment.partition.pooled or experiment.partition.alone is not None:
        return f"{part}.name: partition.pooled and partition.alone train one model; leave out {part}"
    if "head" in experiment.parts:
        return f"{part}.name: a head that the server solves is one for all clients; leave out {part} or the head"
    return None


@component
class Local:
    """Layers that stay at every client: their parameters and buffers are trained there, kept, and never sent.

    ``part``: ``norm`` (normalisation layers), ``head`` (the last layer that has parameters, in the order of the model's
    declaration), or a pattern with ``*`` for names of layers or parameters. The rest of the model is the run's vector,
    and all that corrections, regulators and the server see.
    """

    own_data: ClassVar[bool] = True
    part: Annotated[str, rule("must be norm, head or a pattern of names", bool)] = NORM

    def clash(self, experiment: Any) -> str | None:
        if "server_steps" in experiment.parts:
            return "local.name: server_steps trains the whole model at the server; leave out one of the two"
        return clash("local", experiment)

    def names(self, model: Module) -> list[str]:
        """The parameters and buffers that stay; a `ConfigError` where a pattern has none, or nothing would be sent."""
        if bare_model(model) is not model:
            raise ConfigError("local.part: needs the model itself, not one inside torch.compile or DataParallel")
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        tensors, layers = [*trained, *read_buffers(model)], [self.part]
        if self.part == HEAD:
            layers = [trained[-1].rpartition(".")[0]]
        elif self.part == NORM:
            layers = [name for name, layer in model.named_modules() if NORM_LAYER.search(type(layer).__name__)]
        patterns = [*layers, *(f"{layer}.*" for layer in layers)]
        found = [name for name in tensors if any(fnmatchcase(name, pattern) for pattern in patterns)]
        if self.part != NORM and not found:
            names = shown(", ".join(tensors), 400)
            raise ConfigError(f"local.part: {self.part!r} matches nothing; expected norm, head or a part of: {names}")
        if set(trained) <= set(found):
            raise ConfigError(f"local.part: {self.part!r} keeps all that is trained at the clients; nothing is shared")
        return found


@component
class Finetune:
    """Every client takes ``steps`` plain steps of its own optimiser from the served model before it is scored.

    The steps are on its training samples, at ``lr``, by default the round's learning rate; without corrections and
    regulator. The result is scored and dropped: nothing is sent, and nobody starts from it. Every round is scored so,
    as if it were the last: a curve says what one would have had by stopping there.
    """

    own_data: ClassVar[bool] = True
    steps: Count = 10
    lr: Positive | None = None

    def clash(self, experiment: Any) -> str | None:
        return clash("finetune", experiment)


@component
class ServerSteps:
    """Gradient steps on a few labelled samples at the server, after every aggregation; with 0 it is plain.

    ``batch`` samples a step, all of them where it is not given.

    >>> ServerSteps(steps=3)
    ServerSteps(steps=3, lr=0.1, batch=None)
    """

    tunable: ClassVar[Mapping[str, tuple[float, float]]] = {"lr": (0.01, 1.0)}
    steps: Annotated[int, Field(ge=0)] = 5
    lr: Positive = 0.1
    batch: Count | None = None

    def clash(self, experiment: Any) -> str | None:
        return None  # a head without clients' steps refuses it


@component
class Off:
    """The part is not there."""


PARTS: Mapping[str, Table[Any]] = {
    "local": Table("part", "local", {"none": Off, "local": Local}),
    "finetune": Table("part", "finetune", {"none": Off, "finetune": Finetune}),
    "dp": Table("part", "dp", {"none": Off, "dp": DP}),
    "server_steps": Table("part", "server_steps", {"none": Off, "server_steps": ServerSteps}),
    "head": Table("head", "heads", {"none": Off, "ridge": Ridge, "lda": LDA}),
}
"""By section: ``none`` and what may stand there."""
