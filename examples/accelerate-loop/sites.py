"""Four unlike sites and a server: nothing here knows of Accelerate."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ecgr

SITES, ROUNDS = 4, 5
Batches = DataLoader[tuple[Tensor, ...]]
State = Mapping[str, Tensor]


def build_model() -> nn.Module:
    """A small classifier for pictures of digits."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def federate(train: Callable[[nn.Module, Batches], State]) -> list[float]:
    """Federated averaging; the test accuracy after each round."""
    digits = ecgr.DATASETS["digits"]().load()
    images = torch.tensor(digits.train.inputs) / 255
    labels = torch.tensor(digits.train.targets)
    strips = labels.argsort(stable=True).chunk(2 * SITES)  # sorted by label: each site sees a few digits only
    own = [torch.cat([strips[site], strips[site + SITES]]) for site in range(SITES)]
    state: State = build_model().state_dict()
    accuracy = []
    for _ in range(ROUNDS):
        sent = []
        for site in own:
            model = build_model()
            model.load_state_dict(state)
            samples = TensorDataset(images[site], labels[site])
            sent.append(train(model, DataLoader(samples, batch_size=16, shuffle=True)))
        shares = [len(site) / len(labels) for site in own]
        state = {name: sum(share * s[name] for share, s in zip(shares, sent, strict=True)) for name in state}
        model = build_model()
        model.load_state_dict(state)
        outputs = model(torch.tensor(digits.test.inputs) / 255)
        accuracy.append(float((outputs.argmax(dim=1) == torch.tensor(digits.test.targets)).float().mean()))
    return accuracy
