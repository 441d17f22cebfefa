"""The real image sets, where they are: verified, read in time, and without holding them twice over."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from ecgr.tasks.data import Cifar10, Cifar100, Mnist, available, verify

SETS = {"mnist", "fashion_mnist", "cifar10", "cifar100"}
ABSENT = SETS - {row.name for row in available() if row.place} if os.environ.get("ECGR_DATA") else SETS
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(ABSENT), reason=f"not below $ECGR_DATA: {', '.join(sorted(ABSENT))}"),
]


@pytest.mark.parametrize(
    ("name", "status", "counts"),
    [
        ("mnist", "official", (60_000, 10_000)),
        ("fashion_mnist", "reordered", (60_000, 10_000)),
        ("cifar10", "reordered", (50_000, 10_000)),
        ("cifar100", "reduced", (10_000, 2_000)),
    ],
)
def test_verify_says_what_is_there(name: str, status: str, counts: tuple[int, int]) -> None:
    """The sets beside this project; the official ones everywhere else are as good."""
    report = verify(name)
    if report.status != "official":
        assert (report.status, tuple(report.counts.values())) == (status, counts)
    assert report.details


def test_the_record_says_that_cifar100_is_reduced() -> None:
    dataset = Cifar100().load()
    assert len(np.unique(dataset.train.targets)) == len(dataset.classes) == 100
    if len(dataset.train) < 50_000:
        assert dataset.notes[0] == f"reduced: {len(dataset.train):,} of 50,000 training images"


@pytest.mark.parametrize(("source", "tolerance"), [(Mnist(), 1e-3), (Cifar10(), 2e-3)])
def test_classes_are_all_there_and_pixels_have_their_statistics(source: Mnist | Cifar10, tolerance: float) -> None:
    dataset = source.load()
    assert len(np.unique(dataset.train.targets)) == len(np.unique(dataset.test.targets)) == 10
    np.testing.assert_allclose(dataset.train.inputs.mean(axis=(0, 2, 3)) / 255, dataset.mean, atol=tolerance)


def test_cifar10_loads_in_ten_seconds_and_twice_its_size() -> None:
    """In a process of its own, because memory is counted at its highest."""
    code = (
        "import resource\nfrom ecgr.tasks.data import Cifar10\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "data = Cifar10().load(); size = data.train.inputs.nbytes + data.test.inputs.nbytes\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / size)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - start < 10
    assert float(done.stdout) < 2.2
