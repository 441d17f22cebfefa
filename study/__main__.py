"""``python -m study`` rebuilds docs/results/paper.md and its figures from the committed data.

``python -m study gather RUNS [COMMIT]`` makes those data from the sweeps' run directories.
"""

import sys
from pathlib import Path

from study.data import DATA
from study.document import rebuild
from study.gather import gather, head

if __name__ == "__main__":
    if sys.argv[1:2] == ["gather"]:
        gather(Path(sys.argv[2]), DATA, sys.argv[3] if len(sys.argv) > 3 else head())
    else:
        rebuild()
