"""Figures and table for a paper, and the two commands."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from matplotlib.figure import Figure
from typer.testing import CliRunner

from ecgr.analysis.records import find_runs, group_runs, read_runs
from ecgr.cli.comparing import figures_command, report_command
from ecgr.compare.analyse import analyse_runs
from ecgr.errors import DataError
from ecgr.report.figures import GREY, ablations, answer_panels, curve_panels, kept_maps
from ecgr.report.picture import ends_of
from ecgr.report.table import latex, to_csv, to_latex
from ecgr.simulation.kept import Kept
from support.hostile import HOSTILE
from support.reports import figures_of
from support.runs import write_comparison_runs, write_run

app = typer.Typer()
app.command("report")(report_command)
app.command("figures")(figures_command)


@pytest.mark.slow
def test_the_answer_comes_first_and_the_rest_on_request_in_two_forms_and_two_widths(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path / "runs", seeds=2)
    few, everything = (figures_of(records, tmp_path / str(more), everything=more) for more in (False, True))
    forms = [f"-{width}-column.{form}" for width in ("one", "two") for form in ("pdf", "png")]
    names = ["answer", "curves", "kept-fedavg-ecgr"]
    tables = ["table.csv", "table.tex"]
    assert [path.name for path in few] == [name + form for name in names[:2] for form in forms] + tables
    assert [path.name for path in everything] == [name + form for name in names for form in forms] + tables
    for path in everything:
        start = {".pdf": b"%PDF", ".png": b"\x89PNG"}.get(path.suffix, b"")
        assert path.read_bytes().startswith(start)
    assert [path.read_bytes() for path in few[:-2]] == [path.read_bytes() for path in everything[: len(few) - 2]]


def test_references_are_drawn_though_their_runs_are_not_among_the_compared(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path / "runs", seeds=2)
    records += [write_run(tmp_path / f"p{seed}", method="pooled", regulator="none", seed=seed) for seed in range(2)]
    comparison = analyse_runs(records)
    (ends,) = ends_of(comparison)
    assert [mark.kind for mark in ends.marks][-1] == "reference"
    figure = Figure(figsize=(3, 3))
    answer_panels(figure, ends, group_runs(comparison.runs, "fedavg")[""], {})
    assert figure.axes[0].lines[-1].get_color() == GREY


def test_kept_steps_are_a_map_for_each_client() -> None:
    figure = Figure(figsize=(3, 3))
    kept_maps(figure, [Kept(2, 0, 3, (1,)), Kept(3, 0, 2, (0,)), Kept(3, 4, 4, (0, 3))])
    assert [ax.get_title() for ax in figure.axes] == ["client 0", "client 4"]
    drawn = [np.nan_to_num(np.asarray(ax.images[0].get_array(), dtype=float), nan=-1).tolist() for ax in figure.axes]
    assert drawn == [[[0, 1, 0, -1], [1, 0, -1, -1]], [[-1, -1, -1, -1], [1, 0, 0, 1]]]


def test_rows_are_joined_by_the_method_s_name_and_say_what_the_comparison_says(tmp_path: Path) -> None:
    """Only one of both methods has a loss of its own, and both the same algorithm and regulator."""
    for seed in range(10):
        write_run(tmp_path / f"a{seed}", regulator="none", seed=seed, method="fedavg")
        loss = {"loss": {"name": "fedntd"}}
        write_run(tmp_path / f"b{seed}", regulator="none", seed=seed, method="fedavg[fedntd]", config=loss, gain=0.1)
    found = analyse_runs(find_runs([tmp_path]))
    base, other = csv.DictReader(to_csv(found).splitlines())
    assert (base["method"], base["verdict"], base["difference"]) == ("fedavg", "baseline", "")
    assert (other["method"], other["verdict"]) == ("fedavg[fedntd]", "ahead")
    assert float(other["difference"]) == pytest.approx(float(other["score"]) - float(base["score"]))
    text = to_latex(found)
    assert f" & {100 * float(other['difference']):+.1f} (" in text
    assert text.count(r"\\") == 3


def test_an_ablation_has_a_panel_for_each_value(tmp_path: Path) -> None:
    for rate in (0.1, 0.01):
        for beta in (0.0, 0.5):
            place = tmp_path / f"{rate}-{beta}"
            config = {"optimizer": {"lr": rate}, "regulator": {"beta": beta}}
            write_run(place / "ecgr", config=config, method=f"fedavg+ecgr(beta={beta})")
            if beta:
                write_run(place / "none", regulator="none", config={"optimizer": {"lr": rate}})
    groups = group_runs(read_runs(find_runs([tmp_path])), "fedavg")
    panels = ablations([own for methods in groups.values() for own in methods])
    assert {key: [title for title, _ in each] for key, each in panels.items()} == {
        "optimizer.lr": ["optimizer.lr = 0.01", "optimizer.lr = 0.1"],
        "regulator.beta": ["regulator.beta = 0.0", "regulator.beta = 0.5"],
    }
    for _, methods in panels["regulator.beta"]:
        assert [own.method.partition("(")[0] for own in methods] == ["fedavg", "fedavg+ecgr"]
        assert len({own.setting for own in methods}) == 1
    figure = Figure(figsize=(3, 3))
    curve_panels(figure, panels["regulator.beta"], "fedavg")
    assert [ax.get_title() for ax in figure.axes] == ["regulator.beta = 0.0", "regulator.beta = 0.5"]
    assert all(len(ax.lines) == 2 for ax in figure.axes)


@pytest.mark.slow
def test_hostile_names_are_drawn_and_set_as_text(tmp_path: Path) -> None:
    odd = HOSTILE[-8:] + HOSTILE[22:24]
    for number, name in enumerate(odd):
        write_run(tmp_path / str(number), rounds=1, clients=1, steps=2, regulator="none", method=name)
    figures_of(find_runs([tmp_path]), tmp_path / "figures")
    rows = (tmp_path / "figures" / "table.tex").read_text().split("\\midrule\n")[1].splitlines()
    assert len(rows) == len(odd) + 2


@pytest.mark.parametrize("name", HOSTILE)
def test_latex_leaves_no_character_that_does_something(name: str) -> None:
    text = re.sub(r"\\(text[a-z]+\{\}|[&%$#_{}])", "", latex(name))
    assert not set(text) & set("\\&%$#_{}~^\n")


def test_nothing_to_draw_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no run has finished a round"):
        figures_of([write_run(tmp_path / "a", rounds=0, planned=3, finished=False)], tmp_path / "figures")


def test_the_commands_write_beside_the_runs_and_say_where(tmp_path: Path) -> None:
    write_run(tmp_path / "a", rounds=2, clients=2, steps=3)
    told = CliRunner().invoke(app, ["report", str(tmp_path)], catch_exceptions=False)
    assert Path(told.output.strip()) == tmp_path / "report.html"
    assert (tmp_path / "report.html").is_file()
    page = tmp_path / "new" / "page.html"
    CliRunner().invoke(app, ["report", str(tmp_path / "a"), "-o", str(page)], catch_exceptions=False)
    assert page.is_file()
    told = CliRunner().invoke(app, ["figures", str(tmp_path / "a")], catch_exceptions=False)
    assert told.output.strip().endswith(str(tmp_path / "a" / "figures"))
    assert (tmp_path / "a" / "figures" / "table.tex").is_file()
