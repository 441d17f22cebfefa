"""What the study computes beside the library: gathered comparisons, the pretrained start, the server's own weights."""

import json
from pathlib import Path

import pytest
import torch
from study.gather import gather
from study.pretrained import measure, table

import ecgr
from ecgr.config.experiment import load
from ecgr.simulation.engines import SerialEngine
from ecgr.simulation.prepare import prepare
from ecgr.simulation.rounds import simulate, start
from study import weights


def finished(place: Path, commits: list[str | None]) -> Path:
    place.mkdir()
    for number, commit in enumerate(commits):
        run = place / f"run-{number}"
        run.mkdir()
        manifest = {"commit": commit, "versions": {"torch": "2"}, "machine": {"cores": 2}}
        (run / "run.json").write_text(json.dumps(manifest))
    (place / "comparison.json").write_text('{"pairs": []}')
    return place


def test_a_comparison_is_kept_under_its_name_with_its_commits(tmp_path: Path) -> None:
    kept = gather(finished(tmp_path / "compare-digits", ["b", "a", "b"]), tmp_path / "data")
    assert kept == tmp_path / "data" / "digits"
    assert (kept / "comparison.json").read_text() == '{"pairs": []}'
    source = json.loads((kept / "source.json").read_text())
    assert source == {"commits": ["a", "b"], "machines": [{"cores": 2}], "runs": 3, "versions": [{"torch": "2"}]}


def test_a_commit_that_no_record_names_is_asked_for(tmp_path: Path) -> None:
    place = finished(tmp_path / "compare-digits", [None])
    with pytest.raises(ValueError, match="do not name their commit"):
        gather(place, tmp_path / "data")
    kept = gather(place, tmp_path / "data", "abc")
    assert json.loads((kept / "source.json").read_text())["commits"] == ["abc"]


def test_what_is_not_finished_or_has_no_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finished"):
        gather(tmp_path, tmp_path / "data")
    with pytest.raises(ValueError, match=r"no run\.json"):
        gather(finished(tmp_path / "compare-digits", []), tmp_path / "data")


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


BASE = {"schedule.name": "constant", "regulator.name": "none", "run.served": "average", "federation.rounds": 4}


@pytest.mark.parametrize(
    ("method", "regulator"), [("fedavg", {}), ("fedavg+ecgr", {"regulator.name": "ecgr", "regulator.beta": 0.2})]
)
def test_without_samples_a_run_is_the_library_s(method: str, regulator: dict[str, object]) -> None:
    base = load("demo").replace(BASE)
    dataset = base.source.load()
    problem = prepare(base.replace(regulator), dataset)
    known = [outcome.row["accuracy"] for outcome in simulate(problem, SerialEngine(problem), start(problem))]
    setting = weights.Setting(base.optimizer.lr)
    made = list(weights.curve(prepare(base, dataset), method, setting, 0, 4))
    assert made == pytest.approx(known, abs=0.01), "but for rounding"


def test_the_server_s_samples_are_no_client_s() -> None:
    problem = prepare(load("demo").replace(BASE), load("demo").source.load())
    assert len(set(weights.server_rows(problem, 200).tolist())) == 200
    below = list(weights.curve(problem, "server steps", weights.Setting(0.0, 1.0, 0.3), 200, 3))
    assert below[-1] > below[0]


@pytest.mark.parametrize("method", ["clients", "all steps", "own steps"])
def test_chosen_weights_lower_the_loss_and_keep_the_length(method: str) -> None:
    rng = torch.Generator().manual_seed(0)
    start, steps = torch.zeros(6), [torch.randn(3, 6, generator=rng), torch.randn(2, 6, generator=rng)]
    target = -steps[1].sum(0)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        return ((flat - target) ** 2).sum()

    shares = [0.5, 0.5]
    plain = weights.plain(start, steps, shares, loss)
    made = weights.RULES[method](start, steps, shares, loss)
    assert loss(start - made) < loss(start - plain)
    if method != "own steps":
        torch.testing.assert_close(made.norm(), plain.norm())
