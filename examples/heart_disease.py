"""Does correcting or regulating local training help four hospitals? One CSV file a hospital; AUC decides.

python heart_disease.py FOLDER      (UCI's processed.*.data; `docs/reference/datasets.md` says where they come from)
"""

import sys

from torch import nn

import ecgr
from ecgr.tasks.data import Csv


def hospitals(folder: str) -> ecgr.Task:
    """Thirteen attributes a patient, gaps filled and columns scaled by each hospital itself; ill or not."""
    names = tuple(f"X{number}" for number in range(1, 15))
    table = Csv(root=folder, files="processed.*.data", columns=names, target="X14", above=0, scope="client",
                missing="median", missing_values=("?", "-9"))  # fmt: skip
    data = table.load()
    return ecgr.Task(model=lambda: nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 1)), name="hospitals",
                     train=data.train, test=data.test, clients=data.train.groups,
                     loss=ecgr.BCE(), metrics=["auc", "accuracy"])  # fmt: skip


if __name__ == "__main__":
    answer = ecgr.compare(hospitals(sys.argv[1]), methods=["fedavg", "fedavg+ecgr", "fedacg", "scaffold"],
                          seeds=10, rounds=30, lr=0.03, batch_size=16, out="runs/hospitals")  # fmt: skip
    print(answer)
