"""docs/results/performance.md: what was measured, on what, by which command."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.rows import Row, number

HEADINGS = {
    "selection": "Against the explicit search of the published method, which stacks all candidate sums at every step,"
    " in a process that keeps the memory it has freed; below, in one that gives it back and has to get it again."
    " And against one float32 product of all steps with each other, which is what a slower selection would show in.",
    "overhead": "Time inside recording and regulation as a share of a client's round; for LeNet whole rounds, too,"
    " with and without regulation in turn, which differ by more than that from one to the next.",
    "memory": "Peak memory of a client's round over that of plain training, as a share of the bound in brackets:"
    " processes of their own, of which each has loaded the same code beforehand. The last rows are of a round with very"
    " many steps, whose T x T inner products outweigh all else: there is never more than one such matrix.",
    "fidelity": "ECGR on a lossy store against ECGR on the exact steps of real training.",
    "simulator": "Seconds per round against a hand-written loop in two processes with everything preloaded, which"
    " records, checks and can resume nothing. Both do the same arithmetic: a ratio below 1 is the machine's noise, not"
    " a gain.",
    "precision": 'The paper\'s CNN trained with `run.precision = "bf16"`, whole rounds with regulation and evaluation.',
    "clients": "The same samples dealt to many clients and to few, in the process pool.",
    "start": "One process that trains two small clients for a round, from command to exit.",
    "scale": "SCAFFOLD, with what clients remember on disk.",
    "pfl": "Against pfl-research 0.6.0, in one process, rounds of a fifth of the clients in turn, FedAvg with LeNet at"
    " batch 128 on random images; the new model is scored every round. There the images are normalised beforehand and"
    " kept in channels-last, a client's batches are views, the same in every round, and users are not evaluated; here"
    " they are shuffled anew.",
    "small": "Models of linear layers and ReLU. Against fedjax 0.0.17 on jax 0.10.2, in one process, rounds of FedAvg"
    " in turn on the same samples and clients, all of whom train for an epoch with momentum; the new model is scored"
    " every round. And whole comparisons of ten seeds, not tuned, against an earlier commit of this repository"
    " (`python -m benchmarks.before`): the demo's problem as it was then, 5 methods and 12 rounds, and heart disease, 2"
    " methods and 30 rounds.",
    "flower": "Seconds per round in Flower's simulation engine against ours on the same work, two cores. There the"
    " client is that of Flower's own PyTorch template (Flower Datasets, images transformed one by one, a DataLoader in"
    " every call) and the engine is left at its defaults; the `tuned client` keeps its images in memory, normalised,"
    " and runs two at a time on one thread each.",
    "ray": "The engine for clusters on this one machine against the process pool, two workers each; and whether data"
    " lie on a node once, in shared memory, or once for each actor.",
    "verdict": "From the command to the page: all processor time, workers included, over that of the clients' own"
    " steps, and its parts as shares of it. Training, regulation and evaluation are those of one run of each"
    " method, made again in one process and counted for all its rounds; analysis and page are made once more from the"
    " finished runs; the rest is the start of processes, records and checkpoints. Forty runs of their own took 0.89 of"
    " the processor time that commit 223715a needs for them (`python -m benchmarks.before lenet`, one pair at commit"
    " 1309b84, 2 cores); 0.60 was aimed at and is not reached: most of it is LeNet's steps, which are torch's in both.",
}
"""By the first word of a row's name."""


def page(rows: list[Row], facts: Mapping[str, Any], population: Mapping[int, float], quick: bool) -> str:
    command = "python -m benchmarks --figures" + (" --quick" if quick else "")
    judged = [row for row in rows if row.limit is not None]
    lines = [
        "# Performance",
        "",
        f"Written by `{command}` on {facts['date']}: commit `{facts['commit']}`, {facts['cores']} cores"
        f" ({facts['processor']}), Python {facts['python']}, torch {facts['torch']}. The tables took"
        f" {facts['seconds']} seconds ({_by_benchmark(facts)});"
        " `make bench` measures them again and fails when a threshold is missed.",
        "",
        f"**{sum(bool(row.passed) for row in judged)} of {len(judged)} thresholds met.** Every number is a ratio of two"
        " things measured in turn in one run, or a share of the same round, and the median where it was repeated"
        " (of the fastest rounds, where a row says so), but those that are said to be seconds. Seconds are of this"
        " machine. `python -m benchmarks --only NAME --repeat 5` shows how far a group's rows differ from"
        " one run to the next.",
        "",
        "All of it ran on the CPU, one thread a process; Flower's template alone has the two threads that its engine"
        " gives a client by default, and one client at a time. With `--device cuda` the same code runs on a GPU:"
        " displacements, stores and matrix products stay on the device of the model, block by block. That path is"
        " tested on the CPU only, through the same device-agnostic interface, and no GPU was measured here.",
    ]
    for topic, text in HEADINGS.items():
        of_topic = [row for row in rows if row.name.partition(":")[0] == topic]
        if of_topic:
            lines += ["", f"## {topic.capitalize()}", "", text, "", *_table(of_topic)]
            lines += _figure(topic, population)
    return "\n".join([*lines, ""])


def _by_benchmark(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {taken}" for name, taken in facts["by_benchmark"].items())


def _table(rows: list[Row]) -> Iterator[str]:
    yield "| what | measured | threshold | met | |"
    yield "|---|---|---|---|---|"
    for row in rows:
        threshold = "" if row.limit is None else f"{row.bound} {number(row.limit)}"
        met = "" if row.limit is None else "yes" if row.passed else "**no**"
        yield f"| {row.name.partition(': ')[2]} | {number(row.value)} | {threshold} | {met} | {row.note} |"


def _figure(topic: str, population: Mapping[int, float]) -> list[str]:
    if topic == "selection":
        return [
            "",
            "![Seconds of selection against T and against d, by both searches](images/performance-selection.png)",
            "",
            "The explicit search builds all candidate sums at every step, about 3/8 T^2 d numbers for half of the"
            " steps; the Gram matrix takes T^2 d / 2 multiply-adds in matrix products that stay in the cache (float64"
            " up to 2^26 of them, float32 beyond), and the search on it is negligible. Where freed memory is given"
            " back, the explicit search has to get it again, page by page, at every step: how much that costs is the"
            " machine's matter, so no threshold rests on it, and the figure leaves it out.",
        ]
    if topic == "scale":
        return [
            "",
            "![Seconds per round against the number of clients](images/performance-clients.png)",
            "",
            "| clients, of whom 10 take part | " + " | ".join(f"{n:,}" for n in population) + " |",
            "|---|" + "---|" * len(population),
            "| seconds per round | " + " | ".join(f"{s:.3f}" for s in population.values()) + " |",
        ]
    return []
