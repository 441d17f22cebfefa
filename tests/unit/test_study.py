"""The study's page, its data and README agree; verdicts follow their rule."""

import json
import re
from itertools import product
from pathlib import Path

import pytest
from study.ablations import (
    ablation_claims,
    ablation_name,
    ablation_pairs,
    verdict_on_agreement,
    verdict_on_loss,
)
from study.claims import claims, collapsed
from study.data import ALGORITHMS, COMPARED, DATA, DATASETS, REGULATORS, RESULTS, Study, load
from study.document import COMMANDS, END, PAGE, README, START, page, rebuild, summary
from study.gather import gather
from study.verdicts import combined, verdict_on_gain

from ecgr.config import presets
from ecgr.report.comparison import Estimate, Pair
from ecgr.report.metrics import PRIMARY
from ecgr.report.presentation import to_csv, to_json
from ecgr.sweep import grid
from support.runs import write_run


@pytest.fixture(scope="module")
def study() -> Study:
    return load()


def pair(verdict: str, low: float, high: float) -> Pair:
    estimate = Estimate(mean=(low + high) / 2, interval=(low, high))
    return Pair("", "fedavg", "ecgr", "none", (0, 1), {}, None, {PRIMARY: estimate}, verdict=verdict)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (pair("better", 0.001, 0.02), "shown"),
        (pair("worse", -0.02, -0.001), "contradicted"),
        (pair("no difference shown", -0.02, 0.0099), "contradicted"),
        (pair("equivalent", -0.004, 0.004), "contradicted"),
        (pair("no difference shown", -0.02, 0.0101), "not shown"),
    ],
)
def test_the_rule_for_gains(found: Pair, verdict: str) -> None:
    assert verdict_on_gain(found) == verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.0099, 0.0099, "shown"),
        (-0.0101, 0.0099, "not shown"),
        (0.005, 0.02, "not shown"),
        (0.01, 0.03, "contradicted"),
        (-0.03, -0.01, "contradicted"),
    ],
)
def test_the_rule_for_agreement(low: float, high: float, verdict: str) -> None:
    assert verdict_on_agreement(pair("no difference shown", low, high)) == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ("worse", "shown"),
        ("better", "contradicted"),
        ("equivalent", "contradicted"),
        ("no difference shown", "not shown"),
    ],
)
def test_the_rule_for_losses(found: str, verdict: str) -> None:
    assert verdict_on_loss(pair(found, -0.01, 0.01)) == verdict


def test_ablations_are_told_by_what_is_varied(tmp_path: Path) -> None:
    """The whole way: runs, their summaries, the labels of a comparison, the rows of the table."""
    runs, data = tmp_path / "runs", tmp_path / "data"
    for algorithm in ("fedavg", "fednova"):
        for name in ("mnist", "cifar10"):
            for lr, alpha, beta in [(0.001, 0.01, 0.2), (0.01, 0.01, 0.2), (0.001, 1.0, 0.2), (0.001, 0.01, 0.0)]:
                for regulator, seed in product(("none", "ecgr"), (0, 1)):
                    if regulator == "none" and beta == 0.0:
                        continue
                    config = {
                        "optimizer": {"lr": lr},
                        "partition": {"alpha": alpha},
                        "regulator": {"name": "ecgr", "beta": beta} if regulator == "ecgr" else {"name": "none"},
                    }
                    where = runs / "study-ablations" / f"{algorithm}-{name}-{lr}-{alpha}-{beta}-{regulator}-{seed}"
                    write_run(where, algorithm=algorithm, regulator=regulator, seed=seed, data=name, config=config)
    for name in ("steps", "collapse", "main"):
        write_run(runs / f"study-{name}" / "a", data="mnist", config={"partition": {"alpha": 0.01}})
    gather(runs, data, commit="1234567")
    found = load(data)
    names = [ablation_name(pair) for pair in ablation_pairs(found.compared["ablations"], "mnist")]
    settings = ["alpha 1.0", "beta 0.0", "lr 0.01"]
    assert names == [f"{title}, {what}" for title in ("FedAvg", "FedNova") for what in ("as usual", *settings)]
    rows = list(ablation_claims(found))
    assert [row.measured.count(";") for row in rows] == [1, 3, 3] * 2  # one inside each gain, one between two
    assert all(row.verdict != "not measured" for row in rows)


def test_verdicts_of_several_settings_are_counted_where_they_differ() -> None:
    assert combined(["shown", "contradicted", "contradicted"]) == "contradicted 2, shown 1"


def test_the_page_is_what_the_data_give(study: Study) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(study), "run `make results`"


def test_readme_holds_the_summary_that_the_data_give(study: Study) -> None:
    _, _, rest = README.read_text(encoding="utf-8").partition(START)
    held, mark, _ = rest.partition(END)
    assert mark
    assert held.strip().splitlines() == summary(study), "run `make results`"


@pytest.mark.parametrize("name", [name for name in COMPARED if (DATA / name).is_dir()])
def test_comparisons_are_those_of_the_summaries(study: Study, name: str) -> None:
    """`ecgr compare` on the runs gave these files; the page's numbers are computed again, and are the same."""
    comparison = study.compared[name].comparison
    assert json.loads((DATA / name / "comparison.json").read_text()) == json.loads(json.dumps(to_json(comparison)))
    assert (DATA / name / "comparison.csv").read_text() == to_csv(comparison)


def test_the_numbers_in_the_page_s_tables_are_those_of_comparison_json() -> None:
    """Read the page as a reader does, and look each row's number up in the file that `ecgr compare` wrote."""
    text = PAGE.read_text(encoding="utf-8")
    written = json.loads((DATA / "main" / "comparison.json").read_text())["pairs"]
    expected = {
        (pair["setting"].removeprefix("data.name="), pair["algorithm"]): pair["metrics"]["last5"] for pair in written
    }
    for (data, algorithm), numbers in expected.items():
        row = next(
            line for line in text.splitlines() if line.startswith(f"| {DATASETS[data]} | {ALGORITHMS[algorithm]} |")
        )
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert float(cells[2]) == pytest.approx(100 * numbers["baseline_mean"], abs=0.005)
        assert float(cells[3]) == pytest.approx(100 * numbers["mean_difference"], abs=0.005)
        low, high = map(float, cells[4].split(" to "))
        assert (low, high) == pytest.approx([100 * end for end in numbers["interval"]], abs=0.005)


def test_everything_that_the_page_shows_is_there() -> None:
    images = re.findall(r"\]\((images/[^)]+)\)", PAGE.read_text(encoding="utf-8"))
    assert len(images) >= 6
    assert all((RESULTS / image).stat().st_size > 1000 for image in images)


def test_every_claim_names_a_command_whose_sweep_exists(study: Study) -> None:
    for claim in claims(study):
        command = COMMANDS[claim.sweep][0]
        preset = command.split()[2]
        assert preset in presets()
        assert next(iter(grid(preset)))
    text = PAGE.read_text(encoding="utf-8")
    assert all(command in text for claim in claims(study) for command in COMMANDS[claim.sweep][:1])


LEAST_SEEDS = {"mnist": 5, "fashion_mnist": 5, "cifar10": 3, "cifar100": 3}
HEADLINE = [("mnist", "fedavg"), ("fashion_mnist", "fedavg")]


def test_the_main_comparison_is_complete(study: Study) -> None:
    for data, least in LEAST_SEEDS.items():
        for algorithm in ALGORITHMS:
            found = study.compared["main"].pair(data, algorithm)
            assert found is not None, (data, algorithm)
            assert len(found.seeds) >= (10 if (data, algorithm) in HEADLINE else least), (data, algorithm)


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_the_controls_are_complete(study: Study, data: str) -> None:
    found = {pair.regulator: pair.seeds for pair in study.compared["controls"].pairs(data)}
    assert found == dict.fromkeys(REGULATORS, (0, 1, 42))


def test_the_collapse_is_there_with_statistics_as_weights_and_only_there(study: Study) -> None:
    entries = study.collapse["statistics"]
    kinds = {kind: [e for e in entries if e["config"]["run.buffers"] == kind] for kind in ("as_weights", "average")}
    assert len(kinds["average"]) == len(kinds["as_weights"]) == 7
    assert sum(map(collapsed, kinds["as_weights"])) >= 2
    assert not any(map(collapsed, kinds["average"]))
    assert all(0 < factor < 1 for e in kinds["average"] for factor in e["factor"])


def test_the_page_can_be_made_again_from_the_data_alone(tmp_path: Path) -> None:
    results, readme = tmp_path / "results", tmp_path / "README.md"
    results.mkdir()
    (results / "data").symlink_to(DATA)
    readme.write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    rebuild(results, readme)
    assert (results / "paper.md").read_text() == PAGE.read_text()
    assert readme.read_text(encoding="utf-8") == README.read_text(encoding="utf-8")
    assert {path.name for path in (results / "images").glob("*.png")} <= {
        path.name for path in (RESULTS / "images").glob("*.png")
    }


def test_gathering_keeps_what_the_runs_hold(tmp_path: Path) -> None:
    runs, data = tmp_path / "runs", tmp_path / "data"
    for regulator in ("none", "ecgr"):
        for seed in (0, 1):
            write_run(runs / "study-main" / f"{regulator}{seed}", regulator=regulator, seed=seed, data="mnist")
    config = {"partition": {"alpha": 0.01}}
    steps = write_run(runs / "study-steps" / "a", data="mnist", config=config)
    write_run(runs / "study-collapse" / "a", data="cifar10", config=config)
    gather(runs, data, commit="1234567")
    found = load(data)
    assert [run.seed for run in found.compared["main"].runs] == [0, 1, 0, 1]
    assert found.compared["main"].comparison.pairs[0].seeds == (0, 1)
    assert found.maps == {"mnist-alpha-0.01": steps.kept()}
    assert found.provenance["commit"] == "1234567"
    assert "controls" not in found.compared
