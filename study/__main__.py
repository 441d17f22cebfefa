"""The study's commands, from a checkout.

::

    python -m study gather DIR...     keep what `ecgr compare` wrote in these directories, with the commit that made it
"""

import sys
from pathlib import Path

from study.gather import gather

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def main(arguments: list[str]) -> str | None:
    """Run a command; what went wrong, if something did."""
    name, *rest = arguments or [""]
    if name != "gather" or not rest:
        return __doc__
    try:
        for place in rest:
            gather(Path(place), RESULTS / "data")
    except (OSError, ValueError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
