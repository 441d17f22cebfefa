"""Which code made a run: the commit of the checkout that the package is run from; None for an installed one."""

from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


def commit(checkout: Path = CHECKOUT) -> str | None:
    """The commit that ``checkout`` is at, read from its files: no git is needed, and none is started."""
    folder = checkout / ".git"
    try:
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (folder / name).is_file():
            return (folder / name).read_text().strip()
        packed = (line.split() for line in (folder / "packed-refs").read_text().splitlines())
        return next((entry[0] for entry in packed if entry[1:] == [name]), None)
    except OSError:
        return None
