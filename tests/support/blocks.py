"""Blocks of code in the pages: found, and taken apart into commands."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {f"docs/{page}" for page in ("index.md", "changes.md", "contributing.md")} | {
    f"docs/reference/{page}.md" for page in ("api", "commands", "settings")
}
SHELL = {"", "bash", "sh"}
_BLOCK = re.compile(r"(?ms)^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=fence)[ \t]*$")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S+\s+")


@dataclass(frozen=True, slots=True)
class Block:
    """A block between fences: of which page, from which line, in which language."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Every page that is kept, by its path in the repository."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    names = sorted(str(page.relative_to(ROOT)) for page in found)
    return [name for name in names if name not in GENERATED and not name.startswith("docs/notebooks/")]


def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages, of these languages if any are named."""
    found = [block for page in pages() for block in _blocks(page)]
    return [block for block in found if not languages or block.language in languages]


def _blocks(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        yield Block(page, text.count("\n", 0, match.start()) + 1, match["language"].strip(), match["text"])


def commands(block: Block) -> list[str]:
    """The commands of a shell's block, one a line, without comments and without variables that are set before them.

    >>> commands(Block("", 1, "", "A=1 ecgr list   # all" + chr(10) + "ecgr run x " + chr(92) + chr(10) + "  --resume"))
    ['ecgr list', 'ecgr run x    --resume']
    """
    lines: list[str] = []
    for line in block.text.replace("\\\n", " ").splitlines():
        if lines and lines[-1].count('"') % 2:
            lines[-1] += "\n" + line  # a string that goes on
        elif line.strip() and not line.lstrip().startswith("#"):
            lines.append(line)
    return [_ASSIGNMENT.sub("", re.sub(r"\s{2,}#[^\"']*$|\s+# .*$", "", line)).strip() for line in lines]


def arguments(command: str) -> list[str] | None:
    """What is given to `ecgr` in a command, also behind another one's ``--``; None where it is not called."""
    words = shlex.split(command)
    for place, word in enumerate(words):
        if word == "ecgr" and (place == 0 or words[place - 1] == "--"):
            return words[place + 1 :]
    return None


def spoken() -> list[tuple[str, str]]:
    """Commands that are named in running text, each with its page; as far as they go where they end in ``…``."""
    prose = {page: _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8")) for page in pages()}
    spans = [(page, span) for page, text in prose.items() for span in re.findall(r"(?<!`)`(ecgr [^`]+)`(?!`)", text)]
    return [(page, " ".join(span.split()).partition(" …")[0].replace("…", "")) for page, span in spans]
