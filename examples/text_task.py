"""Which method predicts a speaker's next character best? A play in a text file; each speaker is a client.

python text_task.py FILE      (a line NAME: says who speaks next, as in tiny Shakespeare)
"""

import sys

import ecgr
from ecgr.tasks.data import Text
from ecgr.tasks.models import transformer


def play(file: str) -> ecgr.Task:
    """The next character after thirty; speakers with fewer than 10,000 characters are left out."""
    data = Text(root=file, length=30, stride=30, minimum=10_000).load()
    return ecgr.Task(model=lambda: transformer(**data.shape, width=32, layers=1), name="play",
                     train=data.train, test=data.test, clients=data.train.groups,
                     loss="cross_entropy", metrics=["accuracy", "perplexity"])  # fmt: skip


if __name__ == "__main__":
    answer = ecgr.compare(play(sys.argv[1]), methods=["fedavg", "fedavg+ecgr", "fedacg"], seeds=3, rounds=10,
                          lr=0.1, batch_size=16, out="runs/play")  # fmt: skip
    print(answer)
