"""The help of every command is plain, ends with examples, and the examples fit; the shell can complete."""

import re
import shlex
import sys
from collections.abc import Iterator

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


def help_of(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", ["ecgr", *words, "--help"])
    assert run_command_line() == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "command"), COMMANDS, ids=lambda value: " ".join(value) if type(value) is tuple else ""
)
def test_help_is_plain_and_its_examples_fit(
    words: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of(words, capsys, monkeypatch)
    assert "\\" not in text
    examples = [line.strip() for line in text.splitlines() if re.match(r"    ([A-Z_]+=\S+ )?ecgr ", line)]
    assert examples
    for example in examples:
        given = shlex.split(example)
        arguments = given[given.index("ecgr") + 1 :]
        assert tuple(arguments[: len(words)]) == words
        command.make_context(" ".join(words), arguments[len(words) :])  # raises where an option does not exist


def test_the_list_of_commands_is_plain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_of((), capsys, monkeypatch)
    assert "\\" not in text
    assert "--install-completion" in text


@pytest.mark.parametrize(
    ("typed", "number", "offered"),
    [("ecgr com", 1, "compare"), ("ecgr run quick", 2, "quickstart"), ("ecgr compare quick", 2, "quickstart")],
)
def test_the_shell_completes(
    typed: str, number: int, offered: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ecgr"])
    monkeypatch.setenv("_ECGR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(number))
    with pytest.raises(SystemExit):
        run_command_line()
    assert capsys.readouterr().out.split() == [offered]
