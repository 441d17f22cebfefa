"""Summaries as a file, and labels for what is compared besides regulators."""

from pathlib import Path

import pytest

from ecgr.analysis.collect import summarise
from ecgr.analysis.comparison import compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import read_summaries, to_json
from ecgr.errors import ConfigError, DataError
from support.runs import write_run

LONGER = {"algorithm": {"server_lr": 1.05}}
USUAL = {"algorithm": {"server_lr": 1.0}}


def test_a_comparison_of_the_file_is_the_comparison_of_the_runs(tmp_path: Path) -> None:
    summaries = [
        RunSummary("fedavg", regulator, seed, (0.1, 0.2 + seed / 30 + gain), (None, 0.1 / 3))
        for regulator, gain in (("none", 0.0), ("ecgr", 0.01))
        for seed in range(4)
    ]
    path = tmp_path / "summaries.json"
    path.write_text(to_json(summaries))
    assert read_summaries(path) == summaries
    assert compare(read_summaries(path)) == compare(summaries)


@pytest.mark.parametrize(
    "text", ["", "[1]", "1", '[{"seed": 0}]', '[{"accuracy": [2.0], "worst_client": [null]}]', '{"a": 1}']
)
def test_anything_else_is_refused_with_the_file_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "summaries.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"summaries\.json: not summaries of runs"):
        read_summaries(path)


def test_a_treatment_is_compared_as_a_regulator_is(tmp_path: Path) -> None:
    """Without it, a longer server step is another algorithm, which has no baseline of its own."""
    records = [
        *(write_run(tmp_path / f"n{seed}", regulator="none", seed=seed, config=USUAL) for seed in (0, 1)),
        *(write_run(tmp_path / f"e{seed}", regulator="ecgr", seed=seed, config=USUAL) for seed in (0, 1)),
        *(write_run(tmp_path / f"l{seed}", regulator="none", seed=seed, config=LONGER) for seed in (0, 1)),
    ]
    plain = compare(summarise(records))
    assert [(pair.algorithm, pair.regulator) for pair in plain.pairs] == [("fedavg(server_lr=1.0)", "ecgr")]
    treated = compare(summarise(records, ["algorithm.server_lr"]))
    assert [(pair.algorithm, pair.regulator) for pair in treated.pairs] == [
        ("fedavg", "ecgr"),
        ("fedavg", "none, server_lr=1.05"),
    ]
    assert all(pair.seeds == (0, 1) for pair in treated.pairs)


def test_a_treatment_that_no_run_has_is_refused(tmp_path: Path) -> None:
    record = write_run(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"--treatment: no run has run\.step_controll"):
        summarise([record], ["run.step_controll"])


def test_what_goes_with_the_data_set_is_not_named_beside_it(tmp_path: Path) -> None:
    records = [
        write_run(tmp_path / f"{data}-{alpha}", data=data, rounds=rounds, config={"partition": {"alpha": alpha}})
        for data, rounds in (("mnist", 4), ("cifar10", 3))
        for alpha in (0.01, 1.0)
    ]
    settings = [summary.setting for summary in summarise(records)]
    assert settings == [
        "data.name=mnist, partition.alpha=0.01",
        "data.name=mnist, partition.alpha=1.0",
        "data.name=cifar10, partition.alpha=0.01",
        "data.name=cifar10, partition.alpha=1.0",
    ]
