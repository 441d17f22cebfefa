"""The classes behind `ecgr.tasks.models`; apart, because subclassing a module needs torch at import."""

import torch
from torch import Tensor, nn

from ecgr.tasks.models import Norm, norm_of


class FitToGrid(nn.AdaptiveMaxPool2d):
    """`torch.nn.AdaptiveMaxPool2d` to a square grid; what is on that grid already passes, to the same bits."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        fits = height == width == self.output_size
        return x if fits else super().forward(x)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, with torchvision's names."""

    def __init__(self, previous: int, size: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(previous, size, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = norm_of(norm, size)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(size, size, kernel_size=3, padding=1, bias=False)
        self.bn2 = norm_of(norm, size)
        self.downsample: nn.Module | None = None
        if stride != 1 or previous != size:
            shortcut = nn.Conv2d(previous, size, kernel_size=1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, norm_of(norm, size))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + shortcut)  # type: ignore[no-any-return]


class ResNet18(nn.Module):
    """ResNet-18 with torchvision's parameter names, shapes and initialisation, so that its checkpoints load."""

    def __init__(self, channels: int, classes: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = norm_of(norm, 64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1, norm), BasicBlock(64, 64, 1, norm))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2, norm), BasicBlock(128, 128, 1, norm))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2, norm), BasicBlock(256, 256, 1, norm))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2, norm), BasicBlock(512, 512, 1, norm))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


# Attention is written out, not left to a fused kernel: the same arithmetic in training and evaluation, on every device.


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
        self.pool = pool
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        mask = None if mask is None else mask.bool()
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.pooled(self.norm(x), mask))  # type: ignore[no-any-return]

    def pooled(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The last of the tokens that count, or their mean, (N, width)."""
        if mask is None:
            return x[:, -1] if self.pool == "last" else x.mean(dim=1)
        if self.pool == "last":
            places = torch.arange(mask.shape[1], device=mask.device)
            return x[torch.arange(len(x), device=x.device), (mask * places).argmax(dim=1)]
        share = mask.to(x.dtype) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        return (x * share[:, :, None]).sum(dim=1)
