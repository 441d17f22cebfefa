"""The study's commands, from a checkout.

::

    python -m study                   rebuild the result pages and their figures from docs/results/data
    python -m study gather DIR...     keep what `ecgr compare` wrote in these directories, with the commit that made it
"""

import sys
from pathlib import Path

from study import figures, pages
from study.gather import gather


def main(arguments: list[str]) -> str | None:
    """Run a command; what went wrong, if something did."""
    name, *places = arguments or ["rebuild"]
    if name not in ("rebuild", "gather") or (name == "gather") != bool(places):
        return __doc__
    try:
        for place in places:
            gather(Path(place), pages.DATA)
    except (OSError, ValueError) as error:
        return str(error)
    if name == "rebuild":
        pages.rebuild()
        figures.rebuild()
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
