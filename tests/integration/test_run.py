"""`ecgr run` in real processes: the same bits with any number of workers, and what a run leaves behind."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import ecgr as package
from ecgr.runs.record import RunRecord
from ecgr.tasks.models import lenet
from support.commands import assert_same_run, ecgr, files_below, rows_without_times

SHORT = ("--set", "federation.rounds=3", "--set", "regulator.name=ecgr")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short runs of the quickstart: one worker, two workers, another seed."""
    folder = tmp_path_factory.mktemp("runs")
    for name, options in {
        "one": ("--workers", "1"),
        "two": ("--workers", "2", "--json"),
        "seed": ("--set", "run.seed=1"),
    }.items():
        done = ecgr("run", "quickstart", *SHORT, "--out", name, *options, cwd=folder)
        assert done.returncode == 0, done.stderr
        (folder / f"{name}.stdout").write_text(done.stdout)
        (folder / f"{name}.stderr").write_text(done.stderr)
    return folder


def test_workers_change_no_byte_of_the_model_and_nothing_but_times_in_the_record(runs: Path) -> None:
    assert_same_run(runs / "one", runs / "two")
    one, two = (RunRecord.open(runs / name).manifest for name in ("one", "two"))
    assert {**one, "created": ""} == {**two, "created": ""}


def test_another_seed_gives_another_run_of_the_same_key(runs: Path) -> None:
    one, other = RunRecord.open(runs / "one"), RunRecord.open(runs / "seed")
    assert (runs / "one" / "model.safetensors").read_bytes() != (runs / "seed" / "model.safetensors").read_bytes()
    assert rows_without_times(runs / "one") != rows_without_times(runs / "seed")
    assert one.key == other.key
    assert (one.seed, other.seed) == (0, 1)
    assert one.manifest["partition"] != other.manifest["partition"]


def test_a_run_leaves_a_whole_record(runs: Path) -> None:
    record = RunRecord.open(runs / "one")
    assert record.finished
    assert [row["round"] for row in record.rounds] == [1, 2, 3]
    manifest = record.manifest
    assert np.array(manifest["partition"]).sum() == 1438
    assert manifest["config"]["federation"]["rounds"] == 3
    assert manifest["config"]["run"]["name"] == "quickstart"
    assert package.Experiment.from_dict(manifest["config"]).key() == manifest["key"]
    assert set(manifest["versions"]) >= {"ecgr", "torch", "numpy"}
    measured = {"round", "accuracy", "loss", "train_loss", "lr", "seconds", "examples"}
    for row in record.rounds:
        assert measured | {"bytes_up", "bytes_down", "clients"} <= set(row)
        assert len(row["clients"]) == 10
        assert 0 <= row["accuracy"] <= 1
        assert row["rejected"] == []
    kept = record.kept()
    assert len(kept) == 3 * 10
    assert all(len(entry.kept) == max(1, entry.steps // 2) for entry in kept)
    assert all(set(entry.kept) <= set(range(entry.steps)) for entry in kept)
    text = (runs / "one" / "run.json").read_text()
    assert str(Path.home()) not in text, "nothing personal"
    assert str(runs) not in text


def test_the_final_model_loads_into_the_model_and_scores_what_the_record_says(runs: Path) -> None:
    model = lenet()
    model.load_state_dict(load_file(runs / "one" / "model.safetensors"))
    data = package.DATASETS["digits"]().load()
    images = (torch.from_numpy(data.test.inputs).float() / 255 - data.mean[0]) / data.std[0]
    with torch.no_grad():
        hits = model.eval()(images).argmax(dim=1).numpy() == data.test.targets
    assert float(hits.mean()) == rows_without_times(runs / "one")[-1]["accuracy"]


def test_what_it_says_is_a_plain_line_a_round_and_json_alone_on_stdout(runs: Path) -> None:
    told = (runs / "one.stderr").read_text()
    assert [line.split()[1] for line in told.splitlines()] == ["1/3", "2/3", "3/3"]
    assert all(line.startswith("round ") and "accuracy" in line and "loss" in line for line in told.splitlines())
    assert "\x1b" not in told
    summary = json.loads((runs / "two.stdout").read_text())
    last = rows_without_times(runs / "two")[-1]
    assert (summary["round"], summary["accuracy"], summary["seed"]) == (3, last["accuracy"], 0)


def test_a_whole_run_in_process_leaves_every_global_generator_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before: list[Callable[[], Any]] = [
        lambda: torch.random.get_rng_state().tolist(),
        lambda: repr(np.random.get_state(legacy=False)),  # noqa: NPY002 - that nobody uses it is the point
        random.getstate,
        torch.get_num_threads,
        torch.get_default_dtype,
        torch.are_deterministic_algorithms_enabled,
    ]
    states = [state() for state in before]
    few = {"federation.rounds": 1, "data.fraction": 0.2, "federation.batch_size": 8, "regulator.name": "none"}
    record = package.run("quickstart", tmp_path / "run", settings=few)
    assert record.finished
    assert [state() for state in before] == states
    assert record.kept() == []
    assert not (tmp_path / "run" / "steps.npz").exists(), "without a regulator no step is recorded"


# The package itself


def test_the_public_names_are_sorted_complete_and_all_there() -> None:
    """`dir(ecgr)` is what a person sees."""
    assert package.__all__ == sorted(package.__all__)
    assert dir(package) == package.__all__
    assert len(set(package.__all__)) == len(package.__all__)
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert {"__version__", "Recorder", "ECGR", "Task", "Answer", "compare", "run", "load"} < set(package.__all__)


def test_importing_it_imports_neither_torch_nor_numpy_and_nothing_public_is_not_exported() -> None:
    """In a fresh process; after every public name was used, what is left are submodules and private names."""
    script = (
        "import sys, types, ecgr\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "[getattr(ecgr, name) for name in ecgr.__all__]\n"
        "public = {n for n, v in vars(ecgr).items() if not n.startswith('_') and not isinstance(v, types.ModuleType)}\n"
        "assert public <= set(ecgr.__all__), public - set(ecgr.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_list_shows_every_table(tmp_path: Path) -> None:
    done = ecgr("list", "--json", cwd=tmp_path)
    assert done.returncode == 0
    tables = json.loads(done.stdout)
    for table in ("algorithms", "regulators", "models", "datasets", "partitioners"):
        assert {row["name"] for row in tables[table]} == set(getattr(package, table.upper()))
    assert "quickstart" in tables["presets"]
    plain = ecgr("list", cwd=tmp_path)
    assert plain.returncode == 0
    assert "scaffold" in plain.stdout
    assert files_below(tmp_path) == {}


def test_a_loss_that_leaves_clients_of_one_class_nothing_says_so_before_it_runs(tmp_path: Path) -> None:
    few = {"loss.name": "fedlc", "partition.name": "dirichlet", "partition.alpha": 0.001, "federation.rounds": 1}
    few |= {"partition.empty": "skip", "partition.min_batches": 0}
    said: list[str] = []
    package.run("quickstart", tmp_path / "run", settings=few, warn=said.append)
    assert any("clients hold one class, and FedLC leaves them 0% of the gradient" in line for line in said)
