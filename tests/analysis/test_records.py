"""From records to summaries: metrics, methods and settings; summaries as a file."""

import json
from pathlib import Path

import pytest

from ecgr.analysis.comparison import compare
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.analysis.records import METHOD, group_runs, quantity_of, read_runs, value_of
from ecgr.analysis.summaries import RunSummary, read_summaries, summaries_json
from ecgr.config.methods import PARTS
from ecgr.errors import DataError
from ecgr.runs.record import RunRecord
from support.runs import write_run


def test_whatever_a_method_can_name_is_the_method_and_never_a_setting() -> None:
    assert set(METHOD) == set(PARTS)


class TestMetric:
    def test_the_first_metric_decides_with_its_unit_and_direction(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a", metric="mae", larger_is_better=False)
        (summary,) = (run.summary for run in read_runs([record]))
        described = [*record.manifest["metrics"], {"name": "other"}]
        assert summary.metric == quantity_of({"metrics": described}) == Quantity("mae", "", larger_is_better=False)
        assert summary.chance is None
        assert summary.values == pytest.approx([row["metrics"]["mae"] for row in record.rounds])

    def test_a_record_that_describes_none_is_of_accuracy_and_what_is_not_finite_no_value(self, tmp_path: Path) -> None:
        (summary,) = (run.summary for run in read_runs([write_run(tmp_path / "a")]))
        assert summary.metric == quantity_of({}) == ACCURACY
        assert summary.chance is not None
        for value in (None, float("inf")):
            assert value_of({"metrics": {"mae": value}, "mae": 3.0}, "mae") is None


class TestMethods:
    def test_a_run_goes_by_the_name_that_its_record_has_and_counts_once(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a", method="scaffold(damping=0.5)/lookahead+ecgr")
        (run,) = read_runs([record, record])
        assert run.summary.method == "scaffold(damping=0.5)/lookahead+ecgr"

    def test_a_plan_names_them_otherwise_and_knows_one_setting(self, tmp_path: Path) -> None:
        records = [
            write_run(tmp_path / regulator, regulator=regulator, config={"optimizer": {"lr": lr}})
            for regulator, lr in (("none", 0.01), ("ecgr", 0.1))
        ]
        assert {run.summary.setting for run in read_runs(records)} == {"optimizer.lr=0.01", "optimizer.lr=0.1"}
        runs = read_runs(records, ["fedavg", "tuned"])
        assert [(run.summary.setting, run.summary.method) for run in runs] == [("", "fedavg"), ("", "tuned")]
        assert compare([run.summary for run in runs]).pairs[0].seeds == (0,)

    def test_a_record_without_a_name_is_refused(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a")
        path = record.directory / "run.json"
        path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "method"}))
        with pytest.raises(DataError, match="names no method"):
            read_runs([RunRecord.open(record.directory)])

    def test_the_baseline_of_a_setting_is_first(self, tmp_path: Path) -> None:
        records = [
            write_run(tmp_path / f"{algorithm}-{regulator}", algorithm=algorithm, regulator=regulator)
            for algorithm in ("fedavg", "fedacg")
            for regulator in ("none", "ecgr")
        ]
        (methods,) = group_runs(read_runs(records), "fedacg").values()
        assert [own.method for own in methods] == ["fedacg", "fedavg", "fedavg+ecgr", "fedacg+ecgr"]


class TestTraining:
    def test_a_step_without_a_finite_length_is_a_divergence_whatever_was_scored(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a")
        rounds = record.directory / "rounds.jsonl"
        rows = [json.loads(line) for line in rounds.read_text().splitlines()]
        rows[-1]["step_norm"] = None
        rounds.write_text("".join(json.dumps(row) + "\n" for row in rows))
        (run,) = read_runs([RunRecord.open(record.directory)])
        assert (run.summary.end, run.summary.diverged) == (None, True)

    def test_the_rate_and_whether_it_decays_come_from_the_config(self, tmp_path: Path) -> None:
        records = [write_run(tmp_path / "a"), write_run(tmp_path / "b", config={"schedule": {"name": "cosine"}})]
        found = [(run.summary.rate, run.summary.constant_rate) for run in read_runs(records)]
        assert found == [(0.01, True), (0.01, False)]


class TestSettings:
    def test_a_key_that_only_some_runs_have_sets_them_apart(self, tmp_path: Path) -> None:
        records = [write_run(tmp_path / "a"), write_run(tmp_path / "b", config={"optimizer": {"momentum": 0.9}})]
        assert [run.summary.setting for run in read_runs(records)] == ["", "optimizer.momentum=0.9"]

    def test_what_goes_with_the_data_set_is_not_named_beside_it(self, tmp_path: Path) -> None:
        records = [
            write_run(tmp_path / f"{data}-{alpha}", data=data, rounds=rounds, config={"partition": {"alpha": alpha}})
            for data, rounds in (("mnist", 4), ("cifar10", 3))
            for alpha in (0.01, 1.0)
        ]
        assert [run.summary.setting for run in read_runs(records)] == [
            "data.name=mnist, partition.alpha=0.01",
            "data.name=mnist, partition.alpha=1.0",
            "data.name=cifar10, partition.alpha=0.01",
            "data.name=cifar10, partition.alpha=1.0",
        ]


class TestSummaries:
    def test_everything_survives_the_file(self, tmp_path: Path) -> None:
        found = [
            RunSummary(
                *("fedavg+ecgr(beta=0.5)", 3, (4.0, None, 2.0), "alpha=1"),
                metric=Quantity("mae", "years", larger_is_better=False),
                chance=9.0,
                diverged=True,
                rate=0.1,
                constant_rate=False,
                tuned=True,
                overlap=0.25,
            ),
            RunSummary("fedavg", 0, ()),
        ]
        path = tmp_path / "summaries.json"
        path.write_text(summaries_json(found))
        assert read_summaries(path) == found

    @pytest.mark.parametrize(
        "text",
        [
            *("", "[1]", "1", '[{"seed": 0}]', '{"a": 1}'),
            '[{"values": [0.5], "metric": 3, "method": "a", "seed": 0}]',
            '[{"accuracy": [0.5], "algorithm": "fedavg", "regulator": "ecgr", "seed": 0}]',
        ],
    )
    def test_anything_else_is_refused_with_the_file_named(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "summaries.json"
        path.write_text(text)
        with pytest.raises(DataError, match=r"summaries\.json: not summaries of runs"):
            read_summaries(path)
