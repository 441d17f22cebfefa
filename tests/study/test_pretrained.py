"""The table of the pretrained start, from runs."""

import json
from pathlib import Path

import pytest
from study.pretrained import measure, table

import ecgr

SMALL = {"partition.clients": 2, "data.table": True, "model.name": "mlp", "data.fraction": 0.1, "run.name": "cifar10-x"}


def test_a_row_has_the_last_accuracies_and_all_bytes_of_its_seeds(tmp_path: Path) -> None:
    records = [
        ecgr.run("quickstart", tmp_path / "runs" / str(seed), settings=SMALL | {"run.seed": seed}, rounds=2)
        for seed in (0, 1)
    ]
    ecgr.run("quickstart", tmp_path / "runs" / "trial", settings=SMALL | {"data.validation": 0.2}, rounds=2)
    ends = [100 * record.rounds[-1]["accuracy"] for record in records]
    (row,) = table([tmp_path])
    assert (row["task"], row["seeds"], row["rounds"]) == ("cifar10-x", [0, 1], 2)
    assert row["accuracy"] == pytest.approx(sum(ends) / 2, abs=0.01)
    assert row["bytes"] == sum(line["bytes_up"] + line["bytes_down"] for line in records[0].rounds)
    shown = measure([tmp_path], tmp_path)
    assert "| x | `" in shown
    assert json.loads((tmp_path / "pretrained.json").read_text())["rows"] == [row]
    with pytest.raises(ValueError, match="no finished runs"):
        measure([tmp_path / "runs"], tmp_path)
