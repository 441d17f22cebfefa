"""The pages that nobody writes by hand: commands, settings, public names, and the notebooks to read.

``python docs/generate.py`` writes them beside the others, where `make docs` finds them; they are not kept.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import ecgr

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "examples" / "notebooks"
NOTE = "<!-- written by `python docs/generate.py` from the code itself: change that, not this page -->"


def home_page() -> str:
    """README, with its links as the site has them: into the docs as they are, to other files as text."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\[([^\]]*)\]\(examples/notebooks/\)", r"[\1](notebooks/compare_two_methods.md)", text)
    text = (
        text.replace("](docs/", "](")
        .replace("](CHANGELOG.md", "](changes.md")
        .replace("](CONTRIBUTING.md", "](contributing.md")
    )
    return text.replace("# ecgr\n", f"# ecgr\n\n{NOTE}\n", 1)


def copied(name: str) -> Callable[[], str]:
    """What makes a page of a text that lies in the root."""

    def page() -> str:
        text = (HERE.parent / name).read_text(encoding="utf-8")
        return text.replace("](docs/", "](")

    return page


def commands_page() -> str:
    """Every command with its arguments and options."""
    import typer

    from ecgr.cli.app import app

    lines = ["# Commands", "", NOTE, "", "`ecgr COMMAND --help` says the same.", ""]
    root: Any = typer.main.get_command(app)
    for name, command in _commands(root, "ecgr"):
        lines += [f"## `{name}`", "", inspect.cleandoc(command.help or "").replace("\b\n", ""), ""]
        rows = [row for parameter in command.params if (row := _parameter(parameter)) is not None]
        if rows:
            lines += ["| | what | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if getattr(command, "commands", None):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _parameter(parameter: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    names = ", ".join(f"`{name}`" for name in parameter.opts if name.startswith("-"))
    shown = names or f"`{parameter.metavar or parameter.name}`"
    text = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.default
    plain = default if isinstance(default, (str, int, float)) and not isinstance(default, bool) else None
    return f"| {shown} | {_cell(text)} | {'' if plain is None else f'`{plain}`'} |"


def settings_page() -> str:
    """Every key of an experiment: from the sections and the tables behind them."""
    from ecgr.config.registry import SECTIONS, describe, parameters_of

    def rows(section: str, entry: Any) -> Iterator[str]:
        for key, field in parameters_of(entry).items():
            given = None if field.is_required() else field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else "none" if given is None else f"`{given!r}`"
            yield f"| `{section}.{key}` | {_cell(describe(field))} | {default} |"

    head = ["| key | allowed | default |", "|---|---|---|"]
    lines = ["# Settings", "", NOTE, "", "What each is for: [Configuration](config.md).", ""]
    for name, section in SECTIONS.items():
        lines += [f"## `[{name}]`", ""]
        if section.settings is not None:
            lines += [*head, *rows(name, section.settings), ""]
        for choice, entry in (section.table or {}).items():
            standard = " (default)" if choice == section.default else ""
            what = (inspect.getdoc(entry) or "").splitlines()[0]
            lines += [f'### `{name}.name = "{choice}"`{standard}', "", what, ""]
            own = list(rows(name, entry))
            if own:
                lines += [*head, *own, ""]
    return "\n".join(lines)


MODULES = {
    "ecgr.testing": "Checks for parts of one's own.",
    "ecgr.flower": "Real federations; the extra `flower`.",
}
"""Beside the package itself, what is public."""


def api_page() -> str:
    """Every public name, with its docstring."""
    names = [name for name in ecgr.__all__ if not name.startswith("__")]
    tables = [name for name in names if isinstance(getattr(ecgr, name), Mapping)]
    lines = ["# Python", "", NOTE, "", "Public are the names below; they load on first use.", ""]
    for name in names:
        if name in tables:
            entries = ", ".join(f"`{entry}`" for entry in getattr(ecgr, name))
            lines += [f"## `ecgr.{name}`", "", f"A table by name: {entries}.", ""]
        else:
            lines += [f"::: ecgr.{name}", ""]
    for module, what in MODULES.items():
        lines += [f"## `{module}`", "", what, ""]
        for name in import_module(module).__all__:
            lines += [f"::: {module}.{name}", "    options:", "      heading_level: 3", ""]
    return "\n".join(lines)


def notebook_page(notebook: Path) -> str:
    """A notebook to read: its words and its code. Its outputs are whoever's who runs it."""
    lines = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        lines += [source, ""] if cell["cell_type"] == "markdown" else ["```python", source, "```", ""]
    title, *rest = lines
    kept = f"To run: [{notebook.name}]({notebook.name}), in a clone `examples/notebooks/{notebook.name}`."
    return "\n".join([title, "", kept, "", *rest])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {
    "index.md": home_page,
    "changes.md": copied("CHANGELOG.md"),
    "contributing.md": copied("CONTRIBUTING.md"),
    "reference/commands.md": commands_page,
    "reference/settings.md": settings_page,
    "reference/api.md": api_page,
}


def write_pages() -> None:
    """Write all of them."""
    for page, text in PAGES.items():
        (HERE / page).write_text(text(), encoding="utf-8")
    folder = HERE / "notebooks"
    folder.mkdir(exist_ok=True)
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        (folder / notebook.name).write_bytes(notebook.read_bytes())
        (folder / f"{notebook.stem}.md").write_text(notebook_page(notebook), encoding="utf-8")


if __name__ == "__main__":
    write_pages()
