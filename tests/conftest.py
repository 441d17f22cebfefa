"""Settings every test shares: reproducible examples, one thread, and nothing left behind in the checkout."""

import os

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
