"""A data set: samples to train and to test on, and what a model, a loss and a record must know of them."""

from dataclasses import dataclass

import numpy as np

from ecgr.tasks.data import Dataset
from ecgr.tasks.samples import Samples


@dataclass(frozen=True)
class Rings:
    """Points inside or outside a ring; three observers, each with a corner of the plane it sees best."""

    samples: int = 600
    seed: int = 0

    def load(self) -> Dataset:
        """Draw the points."""
        rng = np.random.default_rng(self.seed)
        observers = np.arange(self.samples) % 3
        corners = np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
        points = (corners[observers] + rng.normal(size=(self.samples, 2))).astype(np.float32)
        inside = (np.hypot(*points.T) < 1.2).astype(np.int64)
        train = Samples(points[::2], inside[::2], observers[::2])
        test = Samples(points[1::2], inside[1::2], observers[1::2])
        shape = {"features": 2, "outputs": 1}
        return Dataset(train, test, shape, loss="bce", metrics=("auc",), classes=("outside", "inside"))
