"""What both Flower clients of the comparison do with their batches: an epoch of SGD, or a count of hits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

from ecgr.tasks.models import lenet

Batches = Iterable[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Images:
    """A client's batches for one call, and the seconds that it took to get at them."""

    training: Batches
    held_out: Batches
    loading: float = 0.0


def client_app(images_of: Callable[[Context, ConfigRecord], Images], prepared: Callable[[Any], Any]) -> ClientApp:
    """A client with its own way to its images and to a model that is ready for them."""
    app = ClientApp()

    def received(message: Message, context: Context) -> tuple[Any, Images, ConfigRecord]:
        model: Any = lenet()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        config = message.content["config"]
        return prepared(model), images_of(context, config), config

    def reply(message: Message, metrics: dict[str, float], **content: Any) -> Message:
        return Message(content=RecordDict({**content, "metrics": MetricRecord(metrics)}), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, images, config = received(message, context)
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
        for pictures, labels in images.training:
            optimizer.zero_grad()
            cross_entropy(model(pictures), labels).backward()
            optimizer.step()
        metrics = {"num-examples": config["samples"], "loading": images.loading}
        return reply(message, metrics, arrays=ArrayRecord(model.state_dict()))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model, images, config = received(message, context)
        model.eval()
        with torch.no_grad():
            hits = sum(int((model(pictures).argmax(dim=1) == labels).sum()) for pictures, labels in images.held_out)
        held_out = config["held-out"]
        return reply(message, {"num-examples": held_out, "accuracy": hits / held_out, "loading": images.loading})

    return app
