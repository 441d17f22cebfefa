"""From records to labelled summaries: metrics, methods, tuned keys and the points of a length curve."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ecgr.analysis.arms import group_runs
from ecgr.analysis.collect import quantity_of, read_runs, summarise, value_of
from ecgr.analysis.comparison import compare
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.quantities import ACCURACY, Quantity
from ecgr.analysis.summaries import read_summaries, to_json
from ecgr.errors import DataError
from ecgr.runs.record import RunRecord
from support.runs import write_run


def edit(record: RunRecord, manifest: Mapping[str, Any], metric: str | None = None) -> RunRecord:
    """A record with more in its ``run.json``, and its accuracy renamed to another metric."""
    path = record.directory / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **manifest}))
    if metric is not None:
        rounds = record.directory / "rounds.jsonl"
        rows = [json.loads(line) for line in rounds.read_text().splitlines()]
        written = [{**row, "metrics": {metric: 10 * row.pop("accuracy"), "other": 1.0}} for row in rows]
        rounds.write_text("".join(json.dumps(row) + "\n" for row in written))
    return RunRecord.open(record.directory)


class TestMetric:
    def test_the_first_metric_decides_with_its_unit_and_direction(self, tmp_path: Path) -> None:
        described = {"name": "mae", "unit": "", "larger_is_better": False}
        record = edit(write_run(tmp_path / "a"), {"metrics": [described, {"name": "other"}]}, "mae")
        (summary,) = summarise([record])
        assert summary.metric == Quantity("mae", "", larger_is_better=False)
        assert summary.chance is None
        assert summary.values == pytest.approx([row["metrics"]["mae"] for row in record.rounds])

    def test_a_record_that_describes_none_is_of_accuracy(self, tmp_path: Path) -> None:
        (summary,) = summarise([write_run(tmp_path / "a")])
        assert summary.metric == ACCURACY
        assert quantity_of({}) == ACCURACY
        assert summary.chance is not None
        assert summary.path == pytest.approx(6 * 0.5)

    def test_what_is_not_finite_is_not_a_value(self) -> None:
        row = {"metrics": {"mae": None}, "mae": 3.0}
        assert value_of(row, "mae") is None
        assert value_of({"metrics": {"mae": float("inf")}}, "mae") is None


class TestMethods:
    def test_the_record_s_own_name_of_its_method_is_used(self, tmp_path: Path) -> None:
        record = edit(write_run(tmp_path / "a"), {"method": "scaffold(damping=0.5)/lookahead+ecgr"})
        (run,) = read_runs([record])
        assert run.summary.method == run.summary.method == "scaffold(damping=0.5)/lookahead+ecgr"

    def test_without_one_it_is_made_of_what_differs(self, tmp_path: Path) -> None:
        configs: list[dict[str, Any]] = [
            {"server": {"name": "average"}},
            {"server": {"name": "lookahead", "momentum": 0.7}},
            {"server": {"name": "lookahead", "momentum": 0.9}},
            {"server": {"name": "average"}, "loss": {"name": "fedrs"}},
            {"server": {"name": "average"}, "loss": {"name": "fedlc"}},
        ]
        records = [write_run(tmp_path / str(n), regulator="none", config=own) for n, own in enumerate(configs)]
        assert [run.summary.method for run in read_runs(records)] == [
            "fedavg/average",
            "fedavg/lookahead(momentum=0.7)",
            "fedavg/lookahead(momentum=0.9)",
            "fedavg[fedrs]/average",
            "fedavg[fedlc]/average",
        ]

    def test_a_treatment_outside_of_the_method_is_named_beside_it(self, tmp_path: Path) -> None:
        records = [
            edit(
                write_run(tmp_path / f"{n}", seed=n, config={"run": {"step_control": "none"}}),
                {"method": "fedavg+ecgr"},
            )
            for n in range(2)
        ]
        matched = write_run(tmp_path / "m", config={"run": {"step_control": "match_plain"}})
        records.append(edit(matched, {"method": "fedavg+ecgr"}))
        methods = [run.summary.method for run in read_runs(records, ["run.step_control"])]
        assert methods == ["fedavg+ecgr", "fedavg+ecgr", "fedavg+ecgr, step_control=match_plain"]

    def test_tuned_keys_set_no_settings_apart(self, tmp_path: Path) -> None:
        records = [
            write_run(tmp_path / regulator, regulator=regulator, config={"optimizer": {"lr": lr}})
            for regulator, lr in (("none", 0.01), ("ecgr", 0.1))
        ]
        assert {run.summary.setting for run in read_runs(records)} == {"optimizer.lr=0.01", "optimizer.lr=0.1"}
        tuned = read_runs(records, tuned=["optimizer.lr"])
        assert {run.summary.setting for run in tuned} == {""}
        assert compare([run.summary for run in tuned]).pairs[0].seeds == (0,)

    def test_arms_of_whole_methods_are_one_group(self, tmp_path: Path) -> None:
        records = [
            write_run(tmp_path / f"{algorithm}-{regulator}", algorithm=algorithm, regulator=regulator)
            for algorithm in ("fedavg", "fedacg")
            for regulator in ("none", "ecgr")
        ]
        (group,) = group_runs(read_runs(records), "fedacg", "method")
        assert [arm.name for arm in group.arms] == ["fedacg", "fedavg", "fedavg+ecgr", "fedacg+ecgr"]
        assert [arm.name for arm in group_runs(read_runs(records))[0].arms] == ["none", "ecgr"]


class TestLengthCurve:
    def test_its_points_are_labelled_as_the_baseline_and_are_no_arms(self, tmp_path: Path) -> None:
        usual = {"server": {"name": "average", "lr": 1.0}}
        arms = [
            write_run(tmp_path / f"{regulator}{seed}", regulator=regulator, seed=seed, config=usual)
            for regulator in ("none", "ecgr")
            for seed in range(6)
        ]
        longer = [
            write_run(
                tmp_path / f"l{seed}", regulator="none", seed=seed, config={"server": {"name": "average", "lr": 2.0}}
            )
            for seed in range(6)
        ]
        runs = read_runs(arms, length=longer)
        assert {run.summary.server_lr for run in runs[-6:]} == {2.0}
        assert {(run.summary.setting, run.summary.algorithm, run.summary.role) for run in runs[-6:]} == {
            ("", "fedavg", "length")
        }
        found = compare([run.summary for run in runs])
        assert [pair.method for pair in found.pairs] == ["fedavg+ecgr"]
        assert found.family == 1
        assert [len(group.arms) for group in group_runs(runs)] == [2]

    def test_it_is_the_curve_of_its_own_baseline_only(self, tmp_path: Path) -> None:
        """Longer steps of fedavg say nothing about fedacg's, and an arm with longer steps changes nothing."""
        arms, longer = [], []
        for seed in range(6):
            for algorithm, lr in (("fedavg", 1.0), ("fedacg", 1.0), ("fedavg", 1.5)):
                own = {"server": {"name": "average", "lr": lr}}
                place = tmp_path / f"{algorithm}{lr}{seed}"
                arms.append(write_run(place, algorithm=algorithm, regulator="none", seed=seed, config=own))
            twice = {"server": {"name": "average", "lr": 2.0}}
            longer.append(write_run(tmp_path / f"l{seed}", regulator="none", seed=seed, config=twice))
        summaries = [run.summary for run in read_runs(arms, length=longer)]
        fedavg, fedacg, far = dict.fromkeys(run.method for run in summaries if run.role == "arm")
        assert len(compare(summaries, fedavg, "method").curves) == 1
        assert compare(summaries, fedacg, "method").curves == ()
        assert "1.5" in far

    def test_a_run_of_the_comparison_is_not_taken_twice(self, tmp_path: Path) -> None:
        record = write_run(tmp_path / "a")
        assert [run.summary.role for run in read_runs([record, record], length=[record])] == ["arm"]


class TestSummaries:
    def test_everything_survives_the_file(self, tmp_path: Path) -> None:
        found = [
            RunSummary(
                *("fedavg", "ecgr", 3, (4.0, None, 2.0), (None, 5.0, None), "alpha=1", "fedavg+ecgr(beta=0.5)"),
                metric=Quantity("mae", "years", larger_is_better=False),
                step_norms=(1.0, 2.0, None),
                server_lr=2.0,
                role="length",
                chance=9.0,
            ),
            RunSummary("fedavg", "none", 0, ()),
        ]
        path = tmp_path / "summaries.json"
        path.write_text(to_json(found))
        assert read_summaries(path) == found

    def test_files_from_before_other_metrics_are_read(self, tmp_path: Path) -> None:
        path = tmp_path / "summaries.json"
        path.write_text(
            '[{"accuracy": [0.5, 0.6], "algorithm": "fedavg", "regulator": "ecgr", "seed": 0,'
            ' "setting": "data.name=mnist", "worst_client": [null, 0.25]}]'
        )
        (summary,) = read_summaries(path)
        assert summary == RunSummary("fedavg", "ecgr", 0, (0.5, 0.6), (None, 0.25), "data.name=mnist")

    def test_a_metric_that_is_none_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "summaries.json"
        path.write_text('[{"values": [0.5], "metric": 3, "algorithm": "a", "regulator": "b", "seed": 0}]')
        with pytest.raises(DataError, match="not summaries of runs"):
            read_summaries(path)
