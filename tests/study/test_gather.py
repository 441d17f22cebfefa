"""From finished runs to kept data to pages: whatever is there is shown, whatever is not is said to be missing."""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from study.ceiling import ARMS
from study.ceiling_section import TITLES
from study.data import DATA, load
from study.document import page, summary
from study.gather import gather

import ecgr
from ecgr.analysis.summaries import read_summaries, to_json
from ecgr.errors import DataError
from ecgr.runs.sweep import grid
from study import figure_methods, figures, methods_page
from support.runs import write_run

ARM = "epoch: own steps >= 0"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the least that a page needs."""
    folder = tmp_path / "data"
    needed = [path for name in ("main", "controls", "steps", "collapse") for path in DATA.glob(f"{name}/*")]
    for path in [*needed, DATA / "provenance.json"]:
        target = folder / path.relative_to(DATA)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return folder


def write_sweep(place: Path, sweep: str, seeds: Sequence[int]) -> None:
    """The runs of a preset's sweep with some of its seeds, as they would be recorded."""
    for number, experiment in enumerate(grid(sweep)):
        if experiment.run.seed in seeds:
            config = experiment.to_dict()
            write_run(
                place / str(number),
                algorithm=config["algorithm"]["name"],
                regulator=config["regulator"]["name"],
                seed=experiment.run.seed,
                data=config["data"]["name"],
                rounds=experiment.federation.rounds,
                config=config,
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sweep", "name", "seeds"),
    [("seeds", "main", (2, 3)), ("seeds_cifar", "main", (2,)), ("seeds_controls", "controls", (2,))],
)
def test_later_seeds_join_those_that_are_there(
    tmp_path: Path, data: Path, sweep: str, name: str, seeds: Sequence[int]
) -> None:
    kept = data / name / "summaries.json"
    kept.write_text(to_json([run for run in read_summaries(kept) if run.seed not in seeds]))
    before = {(p.setting, p.algorithm, p.regulator): p.seeds for p in load(data).compared[name].comparison.pairs}
    place = tmp_path / f"study-{sweep}"
    write_sweep(place, f"study/{sweep}", seeds)
    for _ in range(2):  # the second time changes nothing
        gather(place, data, commit="1234567")
        after = {(p.setting, p.algorithm, p.regulator): p.seeds for p in load(data).compared[name].comparison.pairs}
        assert set(after) == set(before)  # joined, and not beside them under another label
        longer = [key for key in after if set(after[key]) > set(before[key])]
        assert longer
        assert all(set(after[key]) == {*before[key], *seeds} for key in longer)
    assert f"`ecgr sweep study/{sweep} --workers 2`" in page(load(data))


@pytest.mark.slow
def test_tissue_is_shown_beside_the_paper_s_numbers(tmp_path: Path, data: Path) -> None:
    place = tmp_path / "study-lc25000"
    write_sweep(place, "study/lc25000", (0, 1))
    gather(place, data, commit="1234567")
    text = page(load(data))
    assert "| FedAvg" in text.partition("## LC25000")[2]
    assert "52.09 / 61.50 | 53.04 / 61.86" in text
    assert text.count("| FedNova, buffers") == 2
    assert "LC25000 was not run" not in text


def write_ceiling(place: Path) -> None:
    place.mkdir()
    for preset, arm, seed in product(("mnist", "fashion_mnist"), ARMS, range(6)):
        values = [0.5 + seed / 100 + (0.02 + seed / 1000 if arm == ARM else 0.0)] * 6
        job = {"preset": f"study/leaderboard/{preset}", "arm": arm, "seed": seed, "commit": "c" * 40, "values": values}
        more = {"step_norms": [1.0] * 6, "plain_cosine": 0.25, "cosine": 0.5} if arm != "plain" else {"cosine": None}
        name = f"{preset}-{list(ARMS).index(arm)}-{seed}.json"
        (place / name).write_text(json.dumps({"step_norms": [1.0] * 6, "plain_cosine": None, **job, **more}))


def test_the_ceiling_has_a_row_for_every_arm_and_answers_the_question(tmp_path: Path, data: Path) -> None:
    assert {*TITLES, "plain"} == set(ARMS)
    assert "## The ceiling" not in page(load(data))
    write_ceiling(tmp_path / "ceiling")
    gather(tmp_path / "ceiling", data, commit="1234567")
    study = load(data)
    text = page(study).partition("## The ceiling of regulation")[2]
    assert "Commit ccccccc." in text
    assert f"| MNIST | {TITLES[ARM]} | 52.50 | +2.25 (+2.05 to +2.45; 6 seeds) | " in text
    assert text.count("| 0.250, 0.500 |") == 2 * (len(ARMS) - 1)
    assert "so there is something to find, if a client were told" in text
    assert "Is there a better way" in "\n".join(summary(study))


@pytest.mark.slow
def test_a_finished_comparison_becomes_a_section_and_a_row_of_the_overview(tmp_path: Path, data: Path) -> None:
    place = tmp_path / "leaderboard-mnist001"
    small = {"partition.clients": 3, "federation.rounds": 2, "data.fraction": 0.1}
    ecgr.compare(
        "quickstart",
        methods=["fedavg", "fedacg", "fedavg/average(lr=1.5)", "fedavg/average(lr=2)"],
        seeds=2,
        settings=small,
        tune={"optimizer.lr": [0.01, 0.1]},
        out=place,
        engine="serial",
    )
    gather(place, data, commit="1234567")
    study = load(data)
    (board,) = study.boards
    text = methods_page.page(study.boards)
    assert "## MNIST, alpha 0.01" in text and "| `fedacg` |" in text and "| FedACG (`fedacg`) |" in text
    assert f"Commit {board.commits[0][:7]}." in text if board.commits else "Commit" in text
    assert "Of the server's learning rates, `fedavg/average(lr=" in text
    assert "- Heart disease at four hospitals: `heart`" in text
    for drawing in (figure_methods.method_map, figure_methods.profile):
        figures.save(tmp_path / f"{drawing.__name__}.png", (6.0, figure_methods.HEIGHT), drawing(study.boards))
        assert (tmp_path / f"{drawing.__name__}.png").stat().st_size > 1000
    shortfalls = methods_page.shortfalls(board)
    assert min(shortfalls.values()) == 0 and set(shortfalls) == {run.method for run in board.runs if run.role == "arm"}
    assert any(line.startswith("- MNIST, alpha 0.01, against a tuned FedAvg:") for line in summary(study))


def test_a_directory_without_anything_of_the_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no sweep, comparison or experiment of the study in it"):
        gather(tmp_path, tmp_path / "data", commit="1234567")
