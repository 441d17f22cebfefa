"""Models: functions that build a ``torch.nn.Module`` for so many input channels and classes.

Keyword arguments beyond ``channels`` and ``classes`` are the model's configuration. Weights come from torch's global
generator, as everywhere in torch; `ecgr.client.build_model` seeds and restores it.
"""

from collections.abc import Callable, Mapping

from ecgr.components import Module
from ecgr.models.cnn import cnn
from ecgr.models.lenet import lenet
from ecgr.models.resnet import resnet18

MODELS: Mapping[str, Callable[..., Module]] = {"lenet": lenet, "cnn": cnn, "resnet18": resnet18}

__all__ = ["MODELS", "cnn", "lenet", "resnet18"]
