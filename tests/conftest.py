"""Settings every test shares: reproducible examples, one thread, and nothing left behind in the checkout.

``--quick`` is the loop of a contributor (`make quick`): no slow test, few generated examples, and a test that takes
longer than a quick one may is an error. `make nightly` takes the profile ``nightly`` of Hypothesis.
"""

import atexit
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings

os.environ["ECGR_CACHE"] = mkdtemp(prefix="ecgr-cache-")
atexit.register(shutil.rmtree, os.environ["ECGR_CACHE"], ignore_errors=True)
os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it; to import torch here takes seconds where xdist hands tests out

EXAMPLES = {"quick": 8, "test": 25, "nightly": 200}
for profile, count in EXAMPLES.items():
    # The same examples on every machine and in every order; a failure prints its own reproduction.
    settings.register_profile(
        profile,
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=count,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile("test")

INTEGRATION, FLOWER = (Path(__file__).parent / name for name in ("integration", "flower"))
LIMIT = 3.0
"""CPU seconds of a quick test: three times what CONTRIBUTING says, for busy machines and first imports."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="no slow test, few generated examples, no test over a limit")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("quick"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """All of ``integration`` is slow, so that its imports can be spared, too; ``flower`` needs the extra."""
    unneeded = config.getoption("quick") and collection_path == INTEGRATION
    return True if unneeded or (collection_path == FLOWER and find_spec("flwr") is None) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All of ``integration`` starts real processes or trains whole runs: none of it belongs to the quick loop."""
    for item in items:
        if INTEGRATION in item.path.parents:
            item.add_marker(pytest.mark.slow)
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("slow")])
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = _cpu_seconds()
    yield
    used = _cpu_seconds() - before
    if item.config.getoption("quick") and used > LIMIT:
        pytest.fail(f"took {used:.1f} CPU seconds: make it cheaper, or mark it slow", pytrace=False)


def _cpu_seconds() -> float:
    """Of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])
