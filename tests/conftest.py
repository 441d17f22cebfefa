"""Settings every test shares: reproducible examples, one thread, and nothing left behind in the checkout."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)

# The same examples on every machine and in every order; a failure prints its own reproduction.
settings.register_profile(
    "ecgr",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ecgr")

INTEGRATION = Path(__file__).parent / "integration"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of ``integration`` starts real processes or trains whole runs: none of it belongs to the quick loop."""
    for item in items:
        if INTEGRATION in item.path.parents:
            item.add_marker(pytest.mark.slow)
