"""A Flower client as Flower's own PyTorch template has it.

Images lie on disk as PNG in a Parquet file, as they come from a hub; Flower Datasets opens them once a process; every
call cuts the client's partition, splits off what is held out, transforms image by image and makes its DataLoaders.
The transformations are those of torchvision that the template uses, written out: torchvision is not needed here.
"""

import io
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image, disable_progress_bars
from flwr.app import ConfigRecord, Context
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import IidPartitioner
from PIL import Image as Picture
from torch.utils.data import DataLoader

from benchmarks.flower_client import Batches, Images, client_app


def write_images(place: Path, count: int) -> str:
    """``count`` random images with their labels, in a file that Flower Datasets can open."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
    columns = {"image": [_as_png(each) for each in pictures], "label": rng.integers(0, 10, size=count).tolist()}
    disable_progress_bars()
    file = place / "images.parquet"
    Dataset.from_dict(columns, Features(image=Image(), label=ClassLabel(num_classes=10))).to_parquet(file)
    return str(file)


def _as_png(pixels: np.ndarray[Any, Any]) -> dict[str, Any]:
    encoded = io.BytesIO()
    Picture.fromarray(pixels).save(encoded, "PNG")
    return {"bytes": encoded.getvalue(), "path": None}


@cache
def _federated(file: str, partitions: int) -> FederatedDataset:
    disable_progress_bars()
    partitioners = {"train": IidPartitioner(num_partitions=partitions)}
    return FederatedDataset(dataset="parquet", data_files={"train": file}, partitioners=partitioners)


def _normalised(picture: Any) -> torch.Tensor:
    pixels = torch.from_numpy(np.array(picture, copy=True)).unsqueeze(2)
    tensor = pixels.permute(2, 0, 1).contiguous().float().div(255)
    mean, deviation = torch.as_tensor([0.5]), torch.as_tensor([0.5])
    return tensor.clone().sub_(mean.view(-1, 1, 1)).div_(deviation.view(-1, 1, 1))


def _transformed(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    batch["image"] = [_normalised(picture) for picture in batch["image"]]
    return batch


def _pairs(loader: DataLoader[Any]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for batch in loader:
        yield batch["image"], batch["label"]


def images_of(context: Context, config: ConfigRecord) -> Images:
    began = time.perf_counter()
    federated = _federated(str(config["file"]), int(context.node_config["num-partitions"]))
    partition = federated.load_partition(int(context.node_config["partition-id"]))
    parts = partition.train_test_split(test_size=int(config["held-out"]), seed=42).with_transform(_transformed)
    training: Batches = _pairs(DataLoader(parts["train"], batch_size=int(config["batch"]), shuffle=True))
    held_out: Batches = _pairs(DataLoader(parts["test"], batch_size=int(config["batch"])))
    return Images(training, held_out, time.perf_counter() - began)


app = client_app(images_of, prepared=lambda model: model)
