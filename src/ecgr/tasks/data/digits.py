"""Scikit-learn's 1,797 real handwritten digits: embedded, so that everything runs offline in seconds."""

from hashlib import sha256
from typing import ClassVar

import numpy as np

from ecgr.component import component
from ecgr.tasks.data.dataset import Dataset, Split

TEST_EVERY = 5  # every fifth image is a test image: 1,438 to train on, 359 to test on


@component
class Digits:
    """1,797 handwritten digits from scikit-learn, 8x8 resized to 28x28, fixed split (1,438 + 359)."""

    train_samples: ClassVar[int] = 1438

    def load(self) -> Dataset:
        """Read the embedded images, resize them bilinearly and split them."""
        from scipy.ndimage import zoom  # slow to import, needed for this set only
        from sklearn.datasets import load_digits  # likewise

        raw, target = load_digits(return_X_y=True)
        small = raw.reshape(-1, 8, 8)
        large = zoom(small, (1, 3.5, 3.5), order=1, grid_mode=True, mode="nearest")
        images = np.rint(large * (255 / 16)).clip(0, 255).astype(np.uint8)[:, None]
        labels = target.astype(np.int64)
        test = np.arange(len(labels)) % TEST_EVERY == TEST_EVERY - 1
        return Dataset(
            train=Split(images[~test], labels[~test]),
            test=Split(images[test], labels[test]),
            classes=tuple("0123456789"),
            mean=(0.3058,),
            std=(0.3251,),
            files={"sklearn-digits": sha256(raw.astype(np.float64).tobytes() + labels.tobytes()).hexdigest()},
        )
