"""Models: functions that build a ``torch.nn.Module`` for so many input channels and classes.

Keyword arguments beyond ``channels`` and ``classes`` are the model's configuration. Weights come from torch's global
generator, as everywhere in torch; `ecgr.simulation.client.build_model` seeds and restores it.
"""

from collections.abc import Callable, Mapping

from ecgr.component import Module
from ecgr.tasks.models.cnn import cnn
from ecgr.tasks.models.lenet import lenet
from ecgr.tasks.models.resnet import resnet18

MODELS: Mapping[str, Callable[..., Module]] = {"lenet": lenet, "cnn": cnn, "resnet18": resnet18}

__all__ = ["MODELS", "cnn", "lenet", "resnet18"]
