"""Model, data and training loop: nothing here knows of Flower or of ecgr."""

from collections.abc import Iterable

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def build_model() -> nn.Module:
    """A small classifier for 8 x 8 digits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def digits(*, test: bool = False) -> tuple[Tensor, Tensor]:
    """Images in [0, 1] and labels, sorted by label so that sites are unlike each other; every fifth is to test on."""
    images, labels = load_digits(return_X_y=True)
    fifth = torch.arange(len(labels)).remainder(5).eq(4).numpy()
    images, labels = images[fifth == test], labels[fifth == test]
    order = labels.argsort(kind="stable")
    return torch.tensor(images[order] / 16, dtype=torch.float32), torch.tensor(labels[order])


def share(site: int, sites: int) -> DataLoader[tuple[Tensor, ...]]:
    """The training batches of one site: two strips of the sorted digits."""
    images, labels = digits()
    strips = torch.arange(len(labels)).chunk(2 * sites)
    own = torch.cat([strips[site], strips[site + sites]])
    generator = torch.Generator().manual_seed(site)
    return DataLoader(TensorDataset(images[own], labels[own]), batch_size=32, shuffle=True, generator=generator)


def fit(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[tuple[Tensor, ...]], mu: float = 0.0
) -> float:
    """One epoch; the mean loss. With ``mu``, FedProx's pull towards where training began."""
    start = [parameter.detach().clone() for parameter in model.parameters()] if mu else []
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        for parameter, anchor in zip(model.parameters(), start, strict=False):
            loss = loss + mu / 2 * (parameter - anchor).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return sum(losses) / len(losses)
