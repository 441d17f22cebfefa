"""The help of every command is plain, ends with examples, and the examples fit; the shell can complete."""

import re
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer

from ecgr.cli.app import app, run_command_line

ROOT = typer.main.get_command(app)


def commands(group: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below ``group`` with the words that lead to it."""
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = list(commands(ROOT))


@pytest.fixture(autouse=True)
def _argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ecgr"])


def help_of(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    sys.argv = ["ecgr", *words, "--help"]
    assert run_command_line() == 0
    text = capsys.readouterr().out
    assert "\\" not in text
    return text


@pytest.mark.parametrize(
    ("words", "command"), COMMANDS, ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_examples_fit(words: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(words, capsys)
    examples = [line.strip() for line in text.splitlines() if re.match(r"    ([A-Z_]+=\S+ )?ecgr ", line)]
    assert examples
    for example in examples:
        given = shlex.split(example)
        arguments = given[given.index("ecgr") + 1 :]
        assert tuple(arguments[: len(words)]) == words
        command.make_context(" ".join(words), arguments[len(words) :])  # raises where an option does not exist


def test_the_command_alone_says_three_things_to_do_and_its_help_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line() == 0
    printed = capsys.readouterr().out
    assert all(f" ecgr {name}" in printed for name in ("demo", "compare", "list"))
    assert "--install-completion" in help_of((), capsys)


@pytest.mark.parametrize(
    ("typed", "number", "offered"),
    [("ecgr com", 1, "compare"), ("ecgr run quick", 2, "quickstart"), ("ecgr compare quick", 2, "quickstart")],
)
def test_completes(typed: str, number: int, offered: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_ECGR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(number)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run_command_line()
    assert capsys.readouterr().out.split() == [offered]
