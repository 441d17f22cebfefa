"""The answer that a comparison gives: to print, to read, to write."""

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from ecgr.analysis.summaries import summaries_json
from ecgr.analysis.verdicts import Comparison
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.files import write_atomically
from ecgr.report.notebook import to_html
from ecgr.report.page import write_report
from ecgr.report.table import to_csv
from ecgr.report.table import to_json as comparison_json
from ecgr.report.terminal import Picture, to_table
from ecgr.report.words import answer, best_first, notes, sentence
from ecgr.runs.record import to_json

WIDTH = 100


class Answer(Comparison):
    """What a comparison found, to be shown: ``print`` gives sentences and a table, a notebook pictures, too."""

    def to_json(self) -> str:
        """The text of ``comparison.json``; its keys are described in ``docs/reference/statistics.md``."""
        return to_json(comparison_json(self), indent=2).decode()

    def report(self, path: str | Path) -> Path:
        """Write the page about the runs and this comparison to ``path``, which it returns."""
        if not self.runs:
            raise ConfigError("report: a comparison of summaries has no runs to report on; compare their directories")
        return write_report(self, Path(path))

    def write(self, directory: Path, warn: Callable[[str], None]) -> "Answer":
        """Write all files of the comparison into ``directory``; the same answer, which knows where they are."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"cannot write {directory}: {error.strerror or error}") from None
        write_atomically(directory / "comparison.json", self.to_json().encode())
        write_atomically(directory / "comparison.csv", to_csv(self).encode())
        write_atomically(directory / "summaries.json", summaries_json(self.summaries).encode())
        if self.runs:
            try:
                self.report(directory / "report.html")
            except EnvironmentFault as error:  # the numbers are there; without the extra only the page is missing
                warn(f"note: no report page: {error}")
        return replace(self, directory=directory)

    def __rich__(self) -> Group:
        sentences = (Text(sentence(pair)) for pair in best_first(self.pairs))
        return Group(
            Text(answer(self), "bold"), Picture(self), *sentences, to_table(self), Text("\n".join(notes(self)))
        )

    def _repr_html_(self) -> str:
        return to_html(self)

    def __repr__(self) -> str:
        found = ", ".join(f"{pair.method} {pair.verdict}" for pair in best_first(self.pairs))
        return f"Answer({found or 'nothing compared'})"

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None, force_jupyter=False).print(self)  # a text there, too
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())
