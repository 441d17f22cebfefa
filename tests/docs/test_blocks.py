"""Every block of code in README, tutorial and guides is run; what cannot be is named, with its reason, and parsed.

Python sessions (``pycon``) are doctests, which pytest collects from the pages themselves.
"""

import ast
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from PIL import Image

import ecgr
from ecgr.cli.app import app, run_command_line
from ecgr.cli.comparing import parse_grid
from ecgr.cli.options import overrides
from ecgr.compare.plan import plan_comparison
from ecgr.config.experiment import presets
from ecgr.config.methods import Method, split_methods
from ecgr.runs.sweep import grid
from support.blocks import ROOT, SHELL, Block, arguments, blocks, commands, spoken
from support.quick import quick_where

DATA, MACHINES = "needs data on disk", "needs several machines, or root"
NOT_RUN = {
    "git clone": "needs the repository's address",
    "make ": "is the suite, or runs longer than it",
    "pip install": "installs: tests/integration/test_wheel.py",
    ".venv/bin/pytest": "is the suite",
    "ecgr federate check hospitals/": DATA,
    "ecgr compare examples/cifar10_pretrained.py": DATA,
    "ecgr federate local": "starts a federation of processes: tests/integration/test_flower_processes.py",
    "ecgr run experiment.toml": "needs the plugin installed: tests/integration/test_plugin.py",
    "head=": MACHINES,
    "srun ray": MACHINES,
    "chown ": MACHINES,
}
"""How commands begin that are only parsed, each with the reason."""
NOT_RUN_PYTHON = {
    "docs/guide/scaling.md": "needs a cluster with GPUs",
    "docs/guide/pretrained.md": "needs the extra heavy: tests/simulation/test_adapters.py",
}
SMALLER = {
    "compare": "--seeds 2 --trials 1 --set federation.rounds=1 --engine serial",
    "run": "--set federation.rounds=1 --engine serial",
}
SMALLER_PRESET = " --set data.fraction=0.3 --set partition.clients=4 --set partition.min_batches=1"
"""What is added to a command, so that it ends soon; everything else of it stays."""
CHECKED = {"pycon", "python", "toml", "json", "yaml", "diff", "text", *SHELL}
COMMANDS = [(block, command) for block in blocks(*SHELL) for command in commands(block)]


def reason(command: str) -> str | None:
    return next((why for start, why in NOT_RUN.items() if command.startswith(start)), None)


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in blocks() if block.language not in CHECKED] == []
    sessions = [block for block in blocks("python") if block.text.startswith(">>>")]
    assert [str(block) for block in sessions] == [], "a session is `pycon`"


def test_every_session_is_collected_as_a_doctest() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-glob=*.md" in options["addopts"]
    sessions = blocks("pycon")
    assert all(">>> " in block.text and block.page.split("/")[0] in options["testpaths"] for block in sessions)


def test_what_is_not_run_is_still_there() -> None:
    assert [start for start in NOT_RUN if not any(command.startswith(start) for _, command in COMMANDS)] == []
    assert set(NOT_RUN_PYTHON) <= {block.page for block in blocks("python")}


def parse(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command that is meant and its parameters, as the command line itself reads them."""
    group: Any = typer.main.get_command(app)
    context, path = group.make_context("ecgr", list(words)), []
    while hasattr(group, "commands") and (left := [*context._protected_args, *context.args]):
        name, group, rest = group.resolve_command(context, left)
        context = group.make_context(name, rest, parent=context)
        path.append(name)
    return " ".join(path), context.params


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: str(value)[:60])
def test_every_command_of_ecgr_exists_with_its_options_methods_and_settings(
    block: Block, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = arguments(command)
    if words is None:
        return
    monkeypatch.chdir(tmp_path)
    name, given = parse(words)
    source, settings = given.get("experiment"), overrides(given.get("settings"))
    methods = split_methods(given["methods"]) if given.get("methods") else None
    if name == "sweep":
        found = presets().get(given["file"])
        if found is None or not found.read_text().startswith("# Needs the code of commit"):
            assert list(grid(given["file"], settings))
    elif name == "compare" and source in presets():
        tune = parse_grid(given["tune"] or [])
        plan_comparison(source, given["baseline"], methods=methods, settings=settings, tune=tune)
    elif source in presets():
        ecgr.load(source, settings)
    else:
        assert all(Method.of(method) for method in methods or ())


@pytest.mark.parametrize(("page", "command"), sorted(set(spoken())), ids=lambda value: str(value)[:60])
def test_every_command_in_running_text_exists(page: str, command: str) -> None:
    try:
        parse(shlex.split(command)[1:])
    except (click.MissingParameter, click.BadOptionUsage) as problem:  # named without all that it needs
        assert "No such" not in problem.format_message(), f"{page}: {problem.format_message()}"


def test_targets_of_make_and_extras_of_pip_exist() -> None:
    made = [command.split()[1] for _, command in COMMANDS if command.startswith("make ")]
    makefile = (ROOT / "Makefile").read_text()
    assert made
    assert [target for target in made if f"\n{target}:" not in makefile] == []


RUN = {
    page: [command for block, command in COMMANDS if block.page == page and reason(command) is None]
    for page in dict.fromkeys(block.page for block, _ in COMMANDS)
}


BY_DAY = ("README.md", "docs/tutorial.md")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", quick_where(lambda page: page in BY_DAY, zip(p for p in RUN if RUN[p]), pytest.mark.nightly)
)
def test_commands_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in an empty folder with the tutorial's task in it."""
    monkeypatch.chdir(tmp_path)
    here = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (task,) = (block.text for block in blocks("python") if block.text.startswith("# my_task.py\n"))
    (tmp_path / "my_task.py").write_text(task)
    for command in RUN[page]:
        words = arguments(command)
        if words is None:
            done = subprocess.run(command, shell=True, check=False, capture_output=True, timeout=120, env=here)
            assert done.returncode == 0, f"{command}: {done.stderr!r}"
        else:
            monkeypatch.setattr(sys, "argv", ["ecgr", *words, *smaller(words).split()])
            assert run_command_line() == 0, command


def smaller(words: list[str]) -> str:
    """What is added to a command that runs something."""
    if words[0] not in SMALLER or words[1].startswith("runs/"):
        return ""
    return SMALLER[words[0]] + (SMALLER_PRESET if words[1] in presets() else "")


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if "from datasets import" in block.text:
        pytest.importorskip("datasets", reason="the extra heavy is not installed")
    if block.page == "docs/guide/bring_your_data.md":
        write_examples(tmp_path)
    if block.page in NOT_RUN_PYTHON:
        tree = ast.parse(block.text)
        tree.body = [line for line in tree.body if isinstance(line, (ast.Import, ast.ImportFrom))]
        exec(compile(tree, str(block), "exec"), {})
    else:
        exec(compile(block.text, str(block), "exec"), {"__name__": "block"})


def write_examples(folder: Path) -> None:
    """The files that the page about a person's own data names."""
    rows = [f"{40 + i % 30},{'fm'[i % 2]},{'abc'[i % 3]},{int(i % 30 > 15)}" for i in range(90)]
    (folder / "patients.csv").write_text("age,sex,hospital,ill\n" + "\n".join(rows))
    (folder / "play.txt").write_text("".join(f"{'AB'[i % 2]}:\nabcabcabc abc {i}\n\n" for i in range(40)))
    for index in range(30):
        place = folder / "pictures" / ("cat", "dog")[index % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (8 * index, 100, 255 - 8 * index)).save(place / f"{index}.png")


@pytest.mark.parametrize("block", blocks("toml"), ids=str)
def test_toml_is_read_as_it_is_meant(block: Block) -> None:
    content = tomllib.loads(block.text)
    if "grid" in content:
        assert list(grid(content))
    elif "project" in content:
        for group in content["project"]["entry-points"]:
            assert f"`{group}`" in (ROOT / "docs/guide/extending.md").read_text()
    else:
        assert ecgr.load(content)


def test_what_other_programs_read_is_well_formed() -> None:
    yaml = pytest.importorskip("yaml")
    for block in blocks("json"):
        assert json.loads(block.text)
    for block in blocks("yaml"):
        assert yaml.safe_load(block.text)


def test_the_difference_that_is_shown_is_that_of_the_two_clients() -> None:
    """Every line of it stands in one of the files, on the side that it says."""
    (block,) = blocks("diff")
    folder = ROOT / "examples" / "flower-dropin" / "dropin"
    plain, regulated = (
        (folder / name).read_text().splitlines() for name in ("client_app.py", "regulated_client_app.py")
    )
    for line in block.text.splitlines():
        sign, text = line[:1], line[1:]
        if sign != "@":
            assert (text in plain) == (sign in "- "), line
            assert (text in regulated) == (sign in "+ "), line
