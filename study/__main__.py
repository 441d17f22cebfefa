"""The study's commands, from a checkout.

::

    python -m study                        rebuild the result pages and their figures from docs/results/data
    python -m study gather DIR [COMMIT]    keep what `ecgr compare` wrote in DIR, with the commit that made it
    python -m study pretrained DIR …       the table of CIFAR-10 from a pretrained body and from scratch
    python -m study weights DIR [PRESET SAMPLES ROUNDS]    weights of local steps chosen by the server's samples
"""

import sys
from pathlib import Path

from study import figures, pages, pretrained, weights
from study.gather import gather


def main(arguments: list[str]) -> str | None:
    """Run a command; what went wrong, if something did."""
    match arguments:
        case []:
            pages.rebuild()
            figures.rebuild()
        case ["gather", place, *commit] if len(commit) < 2:
            try:
                gather(Path(place), pages.DATA, *commit)
            except ValueError as error:
                return str(error)
        case ["pretrained", *places] if places:
            try:
                print(pretrained.measure([Path(place) for place in places], pages.DATA))  # noqa: T201
            except ValueError as error:
                return str(error)
        case ["weights", place]:
            weights.measure(Path(place))
        case ["weights", place, preset, samples, rounds]:
            weights.measure(Path(place), preset, int(samples), int(rounds))
        case _:
            return __doc__
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
