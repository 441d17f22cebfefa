"""A Flower client written for speed: images normalised beforehand and kept in the process, indexed, channels-last."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from flwr.app import ConfigRecord, Context

from benchmarks.flower_client import Images, client_app


@cache
def _kept(client: int, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(client)
    images = torch.randn(samples, 1, 28, 28, generator=generator).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def _batches(client: int, samples: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    images, labels = _kept(client, samples)
    for indices in torch.split(torch.randperm(samples), size):
        yield images[indices], labels[indices]


def images_of(context: Context, config: ConfigRecord) -> Images:
    client, size = int(context.node_config["partition-id"]), int(config["batch"])
    return Images(_batches(client, int(config["samples"]), size), _batches(client, int(config["held-out"]), size))


def prepared(model: Any) -> Any:
    torch.set_num_threads(1)
    return model.to(memory_format=torch.channels_last)


app = client_app(images_of, prepared)
