"""The study's page, its data and README agree, and the data are complete."""

import json
import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from study.__main__ import main
from study.ablations import ablation_claims, ablation_name, ablation_pairs, missing_ablations
from study.claims import claims
from study.collapse import by_report
from study.data import ALGORITHMS, COMPARED, DATA, DATASETS, EXAMINED, REGULATORS, RESULTS, Study, load
from study.document import END, PAGE, README, START, page, rebuild, summary
from study.gather import gather
from study.sections import COMMANDS
from typer.testing import CliRunner

from ecgr.cli.app import app
from ecgr.config.presets import presets
from ecgr.report.presentation import to_csv, to_json
from ecgr.runs.sweep import grid
from support.runs import write_run


@pytest.fixture(scope="module")
def study() -> Study:
    return load()


ABLATION_GAINS = {
    (0.001, 0.01, 0.2): 0.06,
    (0.01, 0.01, 0.2): 0.08,
    (0.0001, 0.01, 0.2): 0.10,
    (0.001, 0.1, 0.2): 0.12,
    (0.001, 1.0, 0.2): 0.14,
    (0.001, 0.01, 0.0): 0.04,
    (0.001, 0.01, 0.5): 0.02,
}
"""By lr, alpha and beta."""


def write_ablations(folder: Path) -> None:
    for algorithm, data, seed in product(("fedavg", "fednova"), ("mnist", "cifar10"), (0, 1)):
        for (lr, alpha, beta), added in ABLATION_GAINS.items():
            for regulator in ("none", "ecgr") if beta == 0.2 else ("ecgr",):
                own = {"name": "ecgr", "beta": beta} if regulator == "ecgr" else {"name": "none"}
                write_run(
                    folder / f"{algorithm}-{data}-{lr}-{alpha}-{beta}-{regulator}-{seed}",
                    algorithm=algorithm,
                    regulator=regulator,
                    seed=seed,
                    data=data,
                    gain=added if regulator == "ecgr" else 0.0,
                    config={"optimizer": {"lr": lr}, "partition": {"alpha": alpha}, "regulator": own},
                )


@pytest.mark.slow
def test_each_row_of_the_ablations_tells_of_its_own_runs(tmp_path: Path) -> None:
    """The whole way: runs, their summaries, the labels of a comparison, the rows of the table."""
    runs, data = tmp_path / "runs", tmp_path / "data"
    write_ablations(runs / "study-ablations")
    for name in ("steps", "collapse", "main"):
        write_run(runs / f"study-{name}" / "a", data="mnist", config={"partition": {"alpha": 0.01}})
    gather(runs, data, commit="1234567")
    found = load(data)
    names = [ablation_name(pair) for pair in ablation_pairs(found.compared["ablations"], "mnist")]
    settings = ["as usual", "alpha 0.1", "alpha 1.0", "beta 0.0", "beta 0.5", "lr 0.0001", "lr 0.01"]
    assert names == [f"{title}, {what}" for title in ("FedAvg", "FedNova") for what in settings]

    assert missing_ablations(found.compared["ablations"], "mnist") == []
    assert len(missing_ablations(found.compared["main"], "mnist")) == 12

    rounds = np.arange(1, 7)
    late, all_rounds = (float(np.mean(1 - np.exp(-own / 3))) for own in (rounds[-5:], rounds))
    expected = [
        [0.10 * late] * 2,
        [0.12 * late],
        [(0.04 - 0.06) * late] * 2,
        [0.10 * late, 0.08 * late],
        [0.12 * late],
        [0.14 * late] * 2,
        [(0.04 - 0.06) * all_rounds] * 2,
        [(0.02 - 0.06) * late],
    ]
    rows = list(ablation_claims(found))
    told = [[float(number) / 100 for number in re.findall(r": ([+-][\d.]+) \(", row.measured)] for row in rows]
    assert told == [pytest.approx(row, abs=0.006) for row in expected]  # runs have noise
    assert all(row.verdict != "not measured" for row in rows)


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
    text = PAGE.read_text(encoding="utf-8")
    for name in {claim.sweep for claim in claims(study)}:
        assert COMMANDS[name][0] in text
        if COMMANDS[name][0].startswith("ecgr sweep"):
            preset = COMMANDS[name][0].split()[2]
            assert preset in presets()
            assert next(iter(grid(preset)))


@pytest.mark.parametrize("command", sorted({c for own in COMMANDS.values() for c in own if c.startswith("ecgr")}))
def test_every_option_of_a_command_exists(command: str) -> None:
    _, name, *words = command.split()
    helped = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).stdout
    assert all(word in helped for word in words if word.startswith("--"))


LEAST_SEEDS = {"mnist": 5, "fashion_mnist": 5, "cifar10": 3, "cifar100": 3}
HEADLINE = [("mnist", "fedavg"), ("fashion_mnist", "fedavg")]


def test_the_main_comparison_is_complete(study: Study) -> None:
    for data, least in LEAST_SEEDS.items():
        for algorithm in ALGORITHMS:
            found = study.compared["main"].pair(data, algorithm)
            assert found is not None, (data, algorithm)
            assert len(found.seeds) >= (10 if (data, algorithm) in HEADLINE else least), (data, algorithm)


@pytest.mark.parametrize("data", EXAMINED)
def test_the_controls_are_complete(study: Study, data: str) -> None:
    found = {pair.regulator: len(pair.seeds) for pair in study.compared["controls"].pairs(data)}
    assert set(found) == set(REGULATORS)
    assert min(found.values()) >= 3


def test_the_collapse_was_looked_at_with_both_treatments_of_the_buffers(study: Study) -> None:
    def settings(entries: Iterable[Any]) -> set[str]:
        return {repr({key: value for key, value in e["config"].items() if key != "run.buffers"}) for e in entries}

    (where, elsewhere, usual), averaged = by_report(study, "as_weights"), by_report(study, "average")
    assert where
    assert elsewhere
    assert [settings(group) for group in (where, elsewhere, usual)] == [settings(group) for group in averaged]


@pytest.mark.slow
def test_the_page_can_be_made_again_from_the_data_alone(tmp_path: Path) -> None:
    results, readme = tmp_path / "results", tmp_path / "README.md"
    copytree(DATA, results / "data")
    readme.write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    rebuild(results, readme)
    for name in ("paper.md", "methods.md"):
        assert (results / name).read_text(encoding="utf-8") == (RESULTS / name).read_text(encoding="utf-8")
    assert readme.read_text(encoding="utf-8") == README.read_text(encoding="utf-8")
    for path in DATA.rglob("comparison.*"):
        assert (results / "data" / path.relative_to(DATA)).read_bytes() == path.read_bytes()
    pages = "".join((RESULTS / name).read_text(encoding="utf-8") for name in ("paper.md", "methods.md", "theory.md"))
    shown = set(re.findall(r"\]\(images/([^)]+)\)", pages))
    assert {path.name for path in (results / "images").glob("*.png")} == shown


def test_a_command_that_does_not_exist_says_which_do() -> None:
    assert "python -m study gather RUNS" in (main(["draw"]) or "")
    assert "python -m study gather RUNS" in (main(["gather"]) or "")
    assert "no run in or below it" in (main(["figures", "/nowhere"]) or "")


@pytest.mark.slow
def test_the_figures_of_any_runs_are_drawn_beside_their_findings(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rounds=2, clients=1, steps=3)
    assert main(["figures", str(tmp_path)]) is None
    written = {path.name.partition("-")[0] for path in (tmp_path / "figures").iterdir()}
    assert written == {"findings.json", "positions"}


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
    assert found.compared["main"].pair("mnist", "fedavg") is not None  # named, though there is no other data set
    assert found.maps == {"mnist-alpha-0.01": steps.kept()}
    assert found.provenance["commit"] == "1234567"
    assert "controls" not in found.compared
