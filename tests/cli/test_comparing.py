"""What the command line says to do next."""

import sys
import webbrowser
from pathlib import Path

import pytest

from ecgr.cli.app import run_command_line
from ecgr.cli.comparing import open_page


def test_the_command_alone_says_three_things_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ecgr"])
    assert run_command_line() == 0
    printed = capsys.readouterr().out
    assert all(f" ecgr {name}" in printed for name in ("demo", "compare", "list"))


def test_a_page_opens_in_the_browser_or_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "report.html"
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    open_page(page)
    assert opened == []
    page.touch()
    open_page(page)
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    open_page(page)
    told = " ".join(capsys.readouterr().err.split())
    assert "no page" in told
    assert "no browser" in told
