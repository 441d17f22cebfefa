"""How much the best recombination of a client's steps could gain, and the answer to the paper's open question."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ecgr.analysis.comparison import Comparison, Pair, compare
from ecgr.analysis.metrics import RunSummary
from study.ceiling import ARMS, PLAIN
from study.verdicts import CLAIMED_GAIN, gain

TITLES = {
    "ecgr": "ECGR, which is told nothing",
    "gradient: own steps >= 0": "told the true gradient: a client's own steps, weights >= 0",
    "gradient: own steps": "the same, weights of any sign",
    "epoch: own steps >= 0": "told an epoch on everybody's data: a client's own steps, weights >= 0",
    "epoch: own steps": "the same, weights of any sign",
    "previous: own steps >= 0": "estimated by the last global step: own steps, weights >= 0",
    "momentum: own steps >= 0": "estimated by the server's momentum: own steps, weights >= 0",
    "control: own steps >= 0": "estimated by SCAFFOLD's control: own steps, weights >= 0",
    "epoch: clients >= 0": "told an epoch: one weight a client, chosen together",
    "epoch: all steps >= 0": "told an epoch: one weight for each step of all clients, chosen together",
    "epoch: itself": "the epoch's own direction",
    "gradient: itself": "the true gradient's own direction",
}
IN_FULL = {
    **TITLES,
    "gradient: own steps": "told the true gradient, weights of any sign",
    "epoch: own steps": "told an epoch on everybody's data, weights of any sign",
}
"""For a sentence, where no row stands above."""
DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
ALONE = ("gradient: own steps >= 0", "gradient: own steps", "epoch: own steps >= 0", "epoch: own steps")
DAMPING = ("gradient: own steps >= 0", "epoch: own steps >= 0")
"""How regulators that keep some steps and damp the others weigh them: none counts a step negatively."""
ESTIMATES = ("previous: own steps >= 0", "momentum: own steps >= 0", "control: own steps >= 0")
TOGETHER = ("epoch: clients >= 0", "epoch: all steps >= 0")


@dataclass(frozen=True, slots=True, eq=False)
class Ceiling:
    """The finished jobs, and what a comparison with plain training says of them, by data set."""

    jobs: Sequence[Mapping[str, Any]]
    comparisons: Mapping[str, Comparison]

    def pair(self, data: str, arm: str) -> Pair | None:
        """One arm against plain training."""
        found = self.comparisons.get(data)
        return None if found is None else next((pair for pair in found.pairs if pair.method == arm), None)

    def cosines(self, data: str, arm: str) -> tuple[float, float] | None:
        """With the target, of the plain step and of the arm's own, in the mean over rounds and seeds."""
        own = [job for job in self.jobs if (_data(job), job["arm"]) == (data, arm) and job["cosine"] is not None]
        return (fmean(job["plain_cosine"] for job in own), fmean(job["cosine"] for job in own)) if own else None


def read(path: Path) -> Ceiling | None:
    """What was kept; None where the experiment was not run."""
    if not path.is_file():
        return None
    jobs = json.loads(path.read_text(encoding="utf-8"))
    order = list(ARMS)
    jobs.sort(key=lambda job: (list(DATA).index(_data(job)), order.index(job["arm"]), job["seed"]))
    comparisons = {}
    for data in dict.fromkeys(map(_data, jobs)):
        runs = [_summary(job) for job in jobs if _data(job) == data]
        comparisons[data] = compare(runs, PLAIN, by="method")
    return Ceiling(jobs, comparisons)


def _data(job: Mapping[str, Any]) -> str:
    return str(job["preset"]).rpartition("/")[2]


def _summary(job: Mapping[str, Any]) -> RunSummary:
    return RunSummary(
        algorithm="fedavg",
        regulator=job["arm"],
        seed=job["seed"],
        values=tuple(job["values"]),
        method=job["arm"],
        step_norms=tuple(job["step_norms"]),
    )


def section(ceiling: Ceiling | None, best: Iterable[str] = ()) -> Iterator[str]:
    """The experiment's table and the answer; ``best`` says what helped elsewhere."""
    if ceiling is None:
        return
    yield from ("## The ceiling of regulation", "")
    yield from ("```", "python -m study ceiling runs/ceiling 2", "python -m study gather runs/ceiling", "```", "")
    commits = dict.fromkeys(str(job["commit"])[:7] for job in ceiling.jobs if job["commit"])
    yield (
        f"Commit {', '.join(commits)}. FedAvg at one learning rate for all, ten clients, alpha 0.01, 15 rounds"
        " (`experiments/study/leaderboard/`). After plain local training, steps are recombined so that their sum has"
        " the largest cosine with a target ([how](theory.md#the-most-that-regulation-can-give)); each client's update"
        " keeps its length, and the server's step is as long as the plain one. No client is told such a target in a"
        " real federation, except for the estimates, which a server has. The largest cosine need not be the best model:"
        " this says what better pointing can give, and not what every choice of weights can."
    )
    yield ""
    yield "| data | what the server's step is | plain, % | difference, points | verdict | cosine: plain, then its own |"
    yield "|---|---|---|---|---|---|"
    for data in ceiling.comparisons:
        for arm, title in TITLES.items():
            pair = ceiling.pair(data, arm)
            if pair is not None:
                yield _row(DATA[data], title, pair, ceiling.cosines(data, arm))
    yield from ("", *answer(ceiling, best))


def _row(data: str, title: str, pair: Pair, cosines: tuple[float, float] | None) -> str:
    told = "" if cosines is None else f"{cosines[0]:.3f}, {cosines[1]:.3f}"
    found = pair.primary
    if found.mean is None:
        lost = sum(difference is None for difference in found.differences)
        return (
            f"| {data} | {title} | | with {lost} of {len(pair.seeds)} seeds there is no end | {pair.verdict} | {told} |"
        )
    level = f"{100 * (found.baseline_mean or 0.0):.2f}"
    return f"| {' | '.join([data, title, level, gain(pair), pair.verdict, told])} |"


def answer(ceiling: Ceiling, best: Iterable[str]) -> Iterator[str]:
    """The paragraph, by rules: what a client alone, an estimate, and a choice made together reach."""
    yield (
        "**Is there a better way to partition and recombine local gradients?** The paper leaves that open. "
        + " ".join(
            [
                _alone(ceiling),
                _damping(ceiling),
                _estimates(ceiling),
                *_gradient(ceiling),
                _together(ceiling),
                *best,
            ]
        )
    )
    yield ""


def in_short(ceiling: Ceiling) -> str:
    """For somebody who reads no further."""
    verdicts = {pair.verdict for found in ceiling.comparisons.values() for pair in found.pairs}
    few = "; too few seeds for a verdict" if verdicts <= {"too few seeds", "diverged"} else ""
    return (
        "Is there a better way to partition and recombine local gradients? What pointing steps at a target that no"
        f" client knows gave, in points, with the server's step as long as plain{few}."
        f" {_damping(ceiling)} {_together(ceiling)} The whole answer:"
        " [the ceiling of regulation](docs/results/paper.md#the-ceiling-of-regulation)."
    )


def _best(ceiling: Ceiling, arms: Sequence[str], data: str) -> tuple[str, Pair] | None:
    found = [(arm, pair) for arm in arms if (pair := ceiling.pair(data, arm)) is not None and pair.primary.interval]
    return max(found, key=lambda item: item[1].primary.mean or 0.0, default=None)


def _told(ceiling: Ceiling, arms: Sequence[str]) -> str:
    found = [(DATA[data], _best(ceiling, arms, data)) for data in ceiling.comparisons]
    return "; ".join(f"on {name} {gain(best[1])}, {IN_FULL[best[0]]}" for name, best in found if best is not None)


def _alone(ceiling: Ceiling) -> str:
    pairs = [best[1] for data in ceiling.comparisons if (best := _best(ceiling, ALONE, data)) is not None]
    if all(pair.primary.interval is not None and pair.primary.interval[1] < CLAIMED_GAIN for pair in pairs):
        verdict = "so pointing a client's own steps better has no gain of a point to find, even with perfect knowledge"
    elif all(pair.primary.excludes_zero and (pair.primary.mean or 0.0) > 0 for pair in pairs):
        verdict = "so there is something to find, if a client were told what no client knows"
    else:
        verdict = "so these seeds do not exclude that there is something to find"
    return (
        "A client that is told what no client knows, and brings its own steps as near to it as they allow, gains (the"
        f" best of four ways, in points): {_told(ceiling, ALONE)}; {verdict}."
    )


def _damping(ceiling: Ceiling) -> str:
    return (
        "With weights that are not negative, as those of every rule that keeps steps and damps others (the best of"
        f" two): {_told(ceiling, DAMPING)}. ECGR itself, which is told nothing, at that length: {_ecgr(ceiling)}."
    )


def _ecgr(ceiling: Ceiling) -> str:
    found = {DATA[data]: ceiling.pair(data, "ecgr") for data in ceiling.comparisons}
    return "; ".join(f"on {name} {gain(pair)}" for name, pair in found.items() if pair is not None)


def _gradient(ceiling: Ceiling) -> Iterator[str]:
    """Whether the true gradient is where a server's long step should point at all."""
    found = {DATA[data]: ceiling.pair(data, "gradient: itself") for data in ceiling.comparisons}
    losses = {name: pair for name, pair in found.items() if pair is not None and (pair.primary.mean or 0.0) < 0}
    if losses and len(losses) == len(found):
        named = "; ".join(f"on {name} {gain(pair)}" for name, pair in losses.items())
        yield (
            f"Nor is the true gradient the place to point a step of that length at: its own direction has {named}. A"
            " large cosine with it is no sign of a good update."
        )


def _estimates(ceiling: Ceiling) -> str:
    lost = {
        DATA[data]: sum(pair is not None and pair.verdict == "diverged" for pair in pairs)
        for data in ceiling.comparisons
        for pairs in [[ceiling.pair(data, arm) for arm in ESTIMATES]]
    }
    named = " and ".join(f"{count} on {name}" for name, count in lost.items() if count)
    diverged = f", of which {named} diverged" if named else ""
    return f"Told only what a server has (the best of three{diverged}): {_told(ceiling, ESTIMATES)}."


def _together(ceiling: Ceiling) -> str:
    return f"With weights that are chosen for all clients together (the best of two): {_told(ceiling, TOGETHER)}."
