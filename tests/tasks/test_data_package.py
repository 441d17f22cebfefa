"""The package as a whole: its tables, and that it stays light."""

import subprocess
import sys

import pytest

from ecgr.tasks.data import DATASETS
from ecgr.tasks.partition import PARTITIONERS


def test_the_tables_hold_every_name_of_the_contract() -> None:
    images = ["digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "image_folder", "lc25000"]
    assert list(DATASETS) == [*images, "arrays", "csv", "text", "heart_disease", "shakespeare", "site"]
    assert list(PARTITIONERS) == ["iid", "dirichlet", "shards", "quantity", "groups"]


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("digits", "site")])
def test_sets_on_disk_take_a_root_as_text_and_keep_it(name: str) -> None:
    source = DATASETS[name](root="/srv")
    assert source != DATASETS[name]()
    with pytest.raises(AttributeError):
        source.root = "/elsewhere"  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="root"):
        DATASETS[name](root=3)


def test_importing_it_loads_nothing_heavy() -> None:
    """Measured by what is imported, which does not depend on how busy the machine is."""
    heavy = ["torch", "PIL", "pooch", "requests", "sklearn", "scipy", "rich", "filelock", "platformdirs"]
    code = f"import sys, ecgr.tasks.data; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
