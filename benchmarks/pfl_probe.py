"""Rounds of FedAvg on random images in pfl-research and in this simulator, in turn, in one process; seconds of each.

A round trains a fifth of the clients for an epoch and scores the new model on a fifth as many images as were trained
on; short rounds in turn, so that both meet the same moments of the machine. There as fast as it can be had
without changing it: images normalised beforehand and kept in memory in channels-last, a client's batches cut once, as
views and in the same order in every round (pfl's `Dataset` does not shuffle), torch's `foreach` SGD, no evaluation on
users, no weights. Ours is the simulator as it is. The first round of each does not count.
"""

import json
import sys
import time
from functools import partial
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.problems import problem, rounds_on
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.evaluate import SHARD
from ecgr.tasks.models import lenet

BATCH, LR, MOMENTUM, TEST_SHARE, ROUNDS_FOR_ALL = 128, 0.001, 0.9, 5, 5


class PflLeNet(nn.Module):
    """The same LeNet with the two functions that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.net = lenet()

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        self.net.train()
        return cross_entropy(self.net(images), labels)

    @torch.no_grad()
    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, Weighted]:
        self.net.eval()
        outputs = self.net(images)
        hits, loss = float((outputs.argmax(dim=1) == labels).sum()), float(cross_entropy(outputs, labels))
        return {"accuracy": Weighted(hits, len(labels)), "loss": Weighted(loss * len(labels), len(labels))}


class InTurn(TrainingProcessCallback):
    """Ends a round of pfl's, with the evaluation before it, and plays one of ours before the next."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours
        self.seconds: dict[str, list[float]] = {"pfl": [], "ours": []}
        self._began = 0.0

    def on_train_begin(self, *, model: Any) -> Metrics:
        self._began = time.process_time()
        return Metrics()

    def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Metrics]:
        ended = time.process_time()
        self.seconds["pfl"].append(ended - self._began)
        self._ours()
        self._began = time.process_time()
        self.seconds["ours"].append(self._began - ended)
        return False, Metrics()


def samples(count: int) -> tuple[Tensor, Tensor]:
    images = torch.randn(count, 1, 28, 28).contiguous(memory_format=torch.channels_last)
    return images, torch.randint(0, 10, (count,))


def our_rounds(clients: int, each: int) -> Any:
    """A function that plays one round after the other in this process."""
    changes = {"regulator__name": "none", "optimizer__lr": LR, "optimizer__momentum": MOMENTUM}
    changes |= {"federation__participation": 1 / ROUNDS_FOR_ALL}
    test = clients // ROUNDS_FOR_ALL * each // TEST_SHARE
    chosen = problem("lenet", samples=clients * each, clients=clients, batch_size=BATCH, test=test, **changes)
    return rounds_on(SerialEngine(chosen), chosen)


def main(clients: int, each: int, rounds: int) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    users = {user: Dataset(samples(each)) for user in range(clients)}
    data = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    module = PflLeNet().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sgd = partial(torch.optim.SGD, momentum=MOMENTUM, foreach=True)
    model = PyTorchModel(module, sgd, torch.optim.SGD(module.parameters(), lr=1.0))
    taking_part = clients // ROUNDS_FOR_ALL
    test = Dataset(samples(taking_part * each // TEST_SHARE))
    turns = InTurn(our_rounds(clients, each))
    score = CentralEvaluationCallback(test, NNEvalHyperParams(local_batch_size=SHARD))
    FederatedAveraging().run(
        NNAlgorithmParams(1 + rounds, evaluation_frequency=2**30, train_cohort_size=taking_part, val_cohort_size=0),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LR),
        NNEvalHyperParams(local_batch_size=SHARD),
        callbacks=[score, turns],
        send_metrics_to_platform=False,
    )
    return {who: times[1:] for who, times in turns.seconds.items()}


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main(*map(int, sys.argv[1:]))) + "\n")
