"""What a method may have besides its correction, server rule and regulator: ``+part(…)`` and ``@head(…)``.

Each has a section of its own in a config. Without that section a part is off, costs nothing, and no record names it; a
section that is there is on, unless its name is ``none``. Each part has a method ``clash``, which says why an experiment
cannot have it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ecgr.algorithms.heads import LDA, Ridge
from ecgr.algorithms.personal import Finetune, Local
from ecgr.algorithms.privacy import DP
from ecgr.component import Count, Positive, component
from ecgr.tables import Table


@component
class Off:
    """The part is not there."""


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


PARTS: Mapping[str, Table[Any]] = {
    "local": Table("part", "local", {"none": Off, "local": Local}),
    "finetune": Table("part", "finetune", {"none": Off, "finetune": Finetune}),
    "dp": Table("part", "dp", {"none": Off, "dp": DP}),
    "server_steps": Table("part", "server_steps", {"none": Off, "server_steps": ServerSteps}),
    "head": Table("head", "heads", {"none": Off, "ridge": Ridge, "lda": LDA}),
}
"""By section: ``none`` and what may stand there."""
