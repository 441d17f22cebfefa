"""A small transformer that reads tokens: "Attention Is All You Need" (Vaswani et al., 2017), pre-norm."""

from typing import Annotated, Literal

from pydantic import Field

from ecgr.component import Count, Module
from ecgr.errors import ConfigError


def transformer(
    *,
    vocabulary: int = 65,
    length: int = 80,
    classes: int | None = None,
    outputs: int | None = None,
    width: Count = 64,
    heads: Count = 4,
    layers: Annotated[int, Field(ge=1, le=48)] = 2,
    pool: Literal["last", "mean"] = "last",
) -> Module:
    """Token and learned position embeddings, ``layers`` pre-norm encoder blocks, one linear layer on the pooled text.

    ``pool = "last"`` scores classes from the last token, as next-token prediction wants it; ``"mean"`` from the mean of
    all. Inputs are tokens (N, at most ``length``), or a dict of ``tokens`` and ``mask``, true where a token counts.

    >>> sum(p.numel() for p in transformer(classes=65, width=16, heads=2, layers=1).parameters())
    6737
    """
    if width % heads:
        raise ConfigError(f"model.heads: {heads} heads cannot share a width of {width}; give a divisor of model.width")
    from ecgr.tasks.models.attention import Transformer  # loads torch

    return Transformer(vocabulary, length, classes or outputs or 1, width, heads, layers, pool)
