"""The encoder behind `transformer`; apart, because subclassing a module needs torch at import.

Attention is written out, not left to a fused kernel: the same arithmetic in training and evaluation, on every device.
"""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Self-attention and a two-layer perceptron, each behind a LayerNorm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The block's output, (N, length, width)."""
        x = x + self.attention(self.norm1(x), mask)
        return x + self.fc2(self.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]

    def attention(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Every token looks at all tokens that ``mask`` lets it see."""
        samples, length, width = x.shape
        query, key, value = self.attention_in(x).view(samples, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT / (width // self.heads) ** 0.5
        if mask is not None:  # the smallest number, not -inf: a text without a token gives numbers, not NaN
            scores = scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min)
        seen = scores.softmax(dim=-1) @ value
        return self.attention_out(seen.transpose(1, 2).reshape(samples, length, width))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Tokens in, class scores out."""

    def __init__(
        self, vocabulary: int, length: int, classes: int, width: int, heads: int, layers: int, pool: str
    ) -> None:
        super().__init__()
        self.pool = POOLS[pool]
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Class scores, (N, classes)."""
        mask = None if mask is None else mask.bool()
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.pool(self.norm(x), mask))  # type: ignore[no-any-return]


def last(x: Tensor, mask: Tensor | None) -> Tensor:
    """The last token that counts, (N, width)."""
    if mask is None:
        return x[:, -1]
    places = torch.arange(mask.shape[1], device=mask.device)
    return x[torch.arange(len(x), device=x.device), (mask * places).argmax(dim=1)]


def mean(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the tokens that count, (N, width)."""
    if mask is None:
        return x.mean(dim=1)
    share = mask.to(x.dtype) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (x * share[:, :, None]).sum(dim=1)


POOLS = {"last": last, "mean": mean}
