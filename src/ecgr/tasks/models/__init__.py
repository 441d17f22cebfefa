"""Models: functions that build a ``torch.nn.Module`` for data of a given shape.

Keyword arguments that a data set's shape names (channels, classes, features, …) are filled from it; the others are the
model's configuration. Weights come from torch's global generator, as everywhere in torch; whoever builds a model seeds
and restores it.
"""

from ecgr.component import Module
from ecgr.tables import Table
from ecgr.tasks.models.cnn import cnn
from ecgr.tasks.models.lenet import lenet
from ecgr.tasks.models.resnet import resnet18
from ecgr.tasks.models.tabular import logistic, mlp
from ecgr.tasks.models.text import transformer

MODELS: Table[Module] = Table(
    "model",
    "models",
    {
        "lenet": lenet,
        "cnn": cnn,
        "resnet18": resnet18,
        "logistic": logistic,
        "mlp": mlp,
        "transformer": transformer,
    },
)

__all__ = ["MODELS", "cnn", "lenet", "logistic", "mlp", "resnet18", "transformer"]
