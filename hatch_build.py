"""The README for an index page, where a link into the repository leads nowhere.

With a ``Repository`` among the project's URLs, links and pictures become absolute. Without one, a link becomes its text
with the path that it has in the source distribution, and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>(?!https?:|#)[^)\s]+)\)")


def for_index(text: str, repository: str | None) -> str:
    """``text`` without a link that only works inside the repository."""

    def link(found: "re.Match[str]") -> str:
        mark, words, target = found["picture"], found["text"], found["target"]
        if repository is not None:
            return f"{mark}[{words}]({repository.rstrip('/')}/{'raw' if mark else 'blob'}/main/{target})"
        return "" if mark else words if target in words else f"{words} (`{target}`)"

    return LINK.sub(link, text)


class ReadmeHook(MetadataHookInterface):
    """Fills in ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by the build."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, repository)}
