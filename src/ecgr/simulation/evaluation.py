"""Evaluation of the global model on the test images, in shards of fixed size.

Shards can be scored anywhere and are summed in order, so the numbers do not depend on how many processes there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from ecgr.core.vectors import write_buffers
from ecgr.simulation.workspace import Problem, Workspace

SHARD = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """Sums over a shard: correct and all images by class, and the loss."""

    correct: NDArray[np.int64]
    images: NDArray[np.int64]
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationJob:
    """Score one shard of the test images with the global model."""

    start: int
    stop: int
    params: Tensor
    buffers: Mapping[str, Tensor]

    @property
    def cost(self) -> int:
        """Images to score."""
        return self.stop - self.start

    @torch.no_grad()
    def run(self, workspace: Workspace) -> Score:
        """Score the shard in ``workspace``."""
        workspace.spec.write(self.params, workspace.model)
        write_buffers(self.buffers, workspace.model)
        workspace.model.eval()
        labels = workspace.test_labels[self.start : self.stop].to(workspace.device)
        scores = workspace.model(workspace.normalised(workspace.test_images[self.start : self.stop]))
        hits = (scores.argmax(dim=1) == labels).cpu().numpy()
        truth = labels.cpu().numpy()
        classes = workspace.problem.classes
        return Score(
            correct=np.bincount(truth[hits], minlength=classes),
            images=np.bincount(truth, minlength=classes),
            loss=float(cross_entropy(scores, labels, reduction="sum").double()),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Accuracy and loss of the global model; per client, accuracy on test images mixed like the client's classes."""

    accuracy: float
    loss: float
    by_client: NDArray[np.float64]


def shards(problem: Problem, params: Tensor, buffers: Mapping[str, Tensor]) -> Iterator[EvaluationJob]:
    """The jobs that evaluate a global model."""
    total = len(problem.test_labels)
    for start in range(0, total, SHARD):
        yield EvaluationJob(start, min(start + SHARD, total), params, buffers)


def summarise(problem: Problem, scores: Sequence[Score]) -> Evaluation:
    """Sum the shards, in order."""
    correct = np.sum([score.correct for score in scores], axis=0)
    images = np.sum([score.images for score in scores], axis=0)
    # A class without test images says nothing about a client that holds it: its share is spread over the others.
    shares = problem.label_shares * (images > 0)
    by_class = correct / images.clip(min=1)
    weights = shares.sum(axis=1)
    by_client = np.divide(shares @ by_class, weights, out=np.full(len(shares), np.nan), where=weights > 0)
    return Evaluation(
        accuracy=float(correct.sum() / images.sum()),
        loss=sum(score.loss for score in scores) / float(images.sum()),
        by_client=by_client,
    )
