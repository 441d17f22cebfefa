"""The residual network behind `resnet18`; apart, because subclassing a module needs torch at import."""

import torch
from torch import Tensor, nn

from ecgr.tasks.models.normalisation import NORMS, Norm


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, with torchvision's names."""

    def __init__(self, previous: int, size: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(previous, size, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = NORMS[norm](size)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(size, size, kernel_size=3, padding=1, bias=False)
        self.bn2 = NORMS[norm](size)
        self.downsample: nn.Module | None = None
        if stride != 1 or previous != size:
            shortcut = nn.Conv2d(previous, size, kernel_size=1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, NORMS[norm](size))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + shortcut)  # type: ignore[no-any-return]


class ResNet18(nn.Module):
    """ResNet-18 with torchvision's parameter names, shapes and initialisation, so that its checkpoints load."""

    def __init__(self, channels: int, classes: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = NORMS[norm](64)
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
        """Class scores."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]
