"""The answer that a comparison gives: to print, to read, to write."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from rich.console import Console, Group
from rich.text import Text

from ecgr.analysis.collect import Run
from ecgr.analysis.comparison import Comparison, Pair
from ecgr.analysis.metrics import RunSummary
from ecgr.analysis.summaries import to_json as summaries_json
from ecgr.errors import ConfigError, EnvironmentFault
from ecgr.files import write_atomically
from ecgr.report.notebook import to_html
from ecgr.report.page.html import write_report
from ecgr.report.picture import Picture
from ecgr.report.presentation import to_csv, to_notes, to_table
from ecgr.report.presentation import to_json as comparison_json
from ecgr.report.sentences import answer, best_first, sentence
from ecgr.runs.record import to_json

WIDTH = 100


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a comparison says: ``print`` gives its sentences and its table, a notebook shows it with pictures.

    ``runs`` is empty where the comparison was made of ``summaries`` alone; ``directory`` is where the files lie, None
    where none were written.
    """

    comparison: Comparison
    summaries: Sequence[RunSummary]
    runs: Sequence[Run] = ()
    directory: Path | None = None

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Each method against its baseline, with its estimates, its verdict and its cause."""
        return self.comparison.pairs

    def to_json(self) -> str:
        """The text of ``comparison.json``; its keys are described in ``docs/reference/statistics.md``."""
        return to_json(comparison_json(self.comparison), indent=2).decode()

    def report(self, path: str | Path) -> Path:
        """Write the page about the runs and this comparison to ``path``, which it returns."""
        if not self.runs:
            raise ConfigError("report: a comparison of summaries has no runs to report on; compare their directories")
        return write_report(self.runs, self.comparison, Path(path))

    def write(self, directory: Path, warn: Callable[[str], None]) -> "Answer":
        """Write all files of the comparison into ``directory``; the same answer, which knows where they are."""
        write_comparison(self.comparison, self.summaries, directory)
        if self.runs:
            try:
                self.report(directory / "report.html")
            except EnvironmentFault as error:  # the numbers are there; without the extra only the page is missing
                warn(f"note: no report page: {error}")
        return replace(self, directory=directory)

    def __rich__(self) -> Group:
        sentences = (Text(sentence(pair)) for pair in best_first(self.pairs))
        head = Text(answer(self.comparison), "bold"), Picture(self.comparison)
        return Group(*head, *sentences, to_table(self.comparison), to_notes(self.comparison))

    def _repr_html_(self) -> str:
        return to_html(self.comparison)

    def __repr__(self) -> str:
        found = ", ".join(f"{pair.method} {pair.verdict}" for pair in best_first(self.pairs))
        return f"Answer({found or 'nothing compared'})"

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=WIDTH, color_system=None, force_jupyter=False).print(self)  # a text there, too
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def write_comparison(comparison: Comparison, summaries: Sequence[RunSummary], directory: Path) -> None:
    """``comparison.json``, ``comparison.csv``, and ``summaries.json``, from which both can be made again."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(f"cannot write {directory}: {error.strerror or error}") from None
    write_atomically(directory / "comparison.json", to_json(comparison_json(comparison), indent=2))
    write_atomically(directory / "comparison.csv", to_csv(comparison).encode())
    write_atomically(directory / "summaries.json", summaries_json(summaries).encode())
