"""docs/results/methods.md: what helps against a tuned FedAvg, problem by problem and over all, and what it costs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from ecgr.analysis.comparison import Pair
from ecgr.analysis.quantities import Quantity
from ecgr.config.catalogue import cost_of
from ecgr.config.methods import Method
from ecgr.report.sentences import answer, best_first
from study.boards import Board
from study.problems import LEADERBOARD, METHODS, PROBLEMS, TITLES

BASELINE, ECGR = "fedavg", "fedavg+ecgr"
SERVER_RATES = ("fedavg/average(lr=1.5)", "fedavg/average(lr=2)")
HOW = (
    "Every method is compared with a FedAvg whose learning rate was tuned as its own was: the same number of choices,"
    " on seeds that the comparison does not use, scored on a part of the training data; what else a method has (its"
    " momentum, its damping) is at the value in its name, or at its default. Pairs by seed; what counts is"
    " the mean of the last five rounds; verdicts by `ecgr compare` ([statistics](../reference/statistics.md)),"
    " corrected for the number of methods on a problem. *Path* is how far the global model went, in units of FedAvg's;"
    " *by direction* is what a method gains over a FedAvg that goes as far. That FedAvg has its own local learning"
    " rate: where tuning gave a method another one, what is not length is called *direction or tuning*. A cause names"
    " the parts that were shown; the other may be there, too. None of it is the paper's protocol: data"
    " and rounds are reduced so that two cores can run them, and the presets say how."
)


def page(boards: Sequence[Board]) -> str:
    """The whole page as Markdown."""
    lines = [
        "# What helps: methods against a tuned FedAvg",
        "",
        "Made by `make results` from the data in `data/`; do not edit by hand.",
        "",
        HOW,
        "",
        *_in_a_sentence(boards),
        *_overview([board for board in boards if board.on_leaderboard]),
        *_costs(),
        *(line for board in boards for line in _section(board)),
        *_absent(boards),
    ]
    return "\n".join(lines)


def _in_a_sentence(boards: Sequence[Board]) -> Iterator[str]:
    yield from ("**In a sentence each.**", "")
    yield from (f"- [{board.title}](#{board.anchor}): {answer(board.comparison)}" for board in boards)
    yield ""


def headline(board: Board) -> str:
    """For somebody who reads no further: what was better, what was worse, and ECGR."""
    pairs = best_first(board.comparison.pairs)
    told = [
        f"{verdict}: {', '.join(f'`{pair.method}` ({_gained(pair)})' for pair in pairs if pair.verdict == verdict)}"
        for verdict in ("better", "worse")
        if any(pair.verdict == verdict for pair in pairs)
    ]
    told = told or ["nothing was shown to be better or worse"]
    if lost := [f"`{pair.method}`" for pair in pairs if pair.verdict == "diverged"]:
        told.append(f"diverged: {', '.join(lost)}")
    decided = [pair for pair in pairs if pair.verdict in ("better", "worse")]
    own = [f"ECGR {_gained(pair)}, {pair.verdict}" for pair in pairs if pair.method == ECGR and _is_open(pair)]
    count = sum(map(is_small, decided))
    be = "is" if count == 1 else "are"
    small = [f"{count} of these {len(decided)} differences {be} too small to matter"] if count else []
    return f"{board.title}, against a tuned FedAvg: {'; '.join([*told, *own, *small])}."


def _is_open(pair: Pair) -> bool:
    return pair.verdict not in ("better", "worse", "diverged")


def is_small(pair: Pair) -> bool:
    """Whether a difference is below what would matter."""
    return pair.margin is not None and abs(pair.primary.mean or 0.0) < pair.margin


def _gained(pair: Pair) -> str:
    unit = pair.metric.difference_unit or pair.metric.name
    cause = f", by {' and '.join(pair.causes)}" if pair.cause else ""
    return f"{pair.metric.change(pair.primary.mean)} {unit}{cause}"


def scale(metric: Quantity) -> float:
    """What makes a difference one of points: shares and areas under a curve lie between 0 and 1."""
    return 100.0 if metric.is_share or metric.name == "auc" else 1.0


def shortfalls(board: Board) -> dict[str, float]:
    """By how much each method ended below the best of its problem, the baseline included."""
    pairs = [pair for pair in board.comparison.pairs if pair.primary.regulated_mean is not None]
    if not pairs:
        return {}
    metric = pairs[0].metric
    levels = {pair.method: metric.gain(pair.primary.regulated_mean or 0.0) for pair in pairs}
    levels[BASELINE] = metric.gain(pairs[0].primary.baseline_mean or 0.0)
    best = max(levels.values())
    return {method: scale(metric) * (best - level) for method, level in levels.items()}


def _overview(boards: Sequence[Board]) -> Iterator[str]:
    """All problems of the leaderboard together."""
    if not boards:
        return
    found = [shortfalls(board) for board in boards]
    yield from ("## Over all problems", "")
    yield (
        f"{len(boards)} of the leaderboard's problems were run. *Below the best*: how far a method ended below the best"
        " one of a problem, in points (hundredths of AUC), in the mean over problems and at worst; small at worst is a"
        " safe choice, unless it diverged anywhere. Means over other problems are not of the same difficulty: the last"
        " column counts them."
    )
    yield ""
    yield "| method | better | worse | equivalent | open | diverged | below the best, mean | at worst | problems |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for method in ranked(boards):
        own = [values[method] for values in found if method in values]
        counts = Counter(_verdicts(boards, method))
        told = [str(counts[verdict]) for verdict in ("better", "worse", "equivalent")]
        told += [str(counts["not decided"] + counts["too few seeds"]), str(counts["diverged"])]
        cells = [""] * len(told) if method == BASELINE else told
        numbers = f"{fmean(own):.2f} | {max(own):.2f} | {len(own)}" if own else " | | 0"
        yield f"| {TITLES[method]} (`{method}`) | {' | '.join(cells)} | {numbers} |"
    yield from ("", "![how far each method ended below the best](images/profile.png)", "")
    yield from ("", "![every method on every problem](images/methods.png)", "")
    yield "Differences to the tuned FedAvg in points; framed where the verdict is better or worse."
    yield ""


def ranked(boards: Sequence[Board]) -> list[str]:
    """The methods that took part: who diverged least often first, then by how far below the best in the mean."""
    found = [shortfalls(board) for board in boards]

    def place(method: str) -> tuple[int, float]:
        own = [values[method] for values in found if method in values]
        return [*_verdicts(boards, method)].count("diverged"), fmean(own) if own else float("inf")

    return sorted((name for name in METHODS if name == BASELINE or any(_verdicts(boards, name))), key=place)


def _verdicts(boards: Sequence[Board], method: str) -> Iterator[str]:
    for board in boards:
        yield from (pair.verdict for pair in board.comparison.pairs if pair.method == method)


def _costs() -> Iterator[str]:
    """What a method takes, counted by playing a round."""
    yield from ("## What each costs", "")
    yield (
        "In vectors of the model's size: up and down a client and round, kept at a client and at the server from round"
        " to round; forward and backward passes a step. Counted by playing a round (`ecgr list methods`). A client that"
        " keeps something must come back."
    )
    yield ""
    yield "| method | up | down | at a client | at the server | passes |"
    yield "|---|---|---|---|---|---|"
    for method in METHODS:
        cost = cost_of(Method.of(method))
        server = f"{cost.server}" + (f" + {cost.server_per_client} a client" if cost.server_per_client else "")
        passes = f"{cost.forward}+{cost.backward}"
        yield f"| {TITLES[method]} | {cost.up} | {cost.down} | {cost.client} | {server} | {passes} |"
    yield from ("", "ECGR keeps a client's steps until the round ends; [what that takes](performance.md).", "")


def _section(board: Board) -> Iterator[str]:
    """One problem: what was run, what was tuned, and every method."""
    yield from (f"## {board.title}", "", "```", board.command, "```", "")
    yield f"Commit {', '.join(commit[:7] for commit in board.commits)}. {_tuned(board.tuning)}"
    if remarks := [
        *_edges(board.tuning),
        *_server_rate(board.tuning),
        *_rising(board.comparison.pairs),
        *_small(board),
        *_unsplit(board.comparison.pairs),
    ]:
        yield from ("", " ".join(remarks))
    yield ""
    metric = board.comparison.pairs[0].metric
    level, unit = ("%", "points") if metric.is_share else (metric.name, metric.name)
    yield (
        f"| method | FedAvg, {level} | difference, {unit} | 95 % interval | verdict | cause | path / FedAvg's |"
        " by direction (97.5 %) | by length (97.5 %) | seeds |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from (_row(pair) for pair in best_first(board.comparison.pairs))
    yield ""


def _row(pair: Pair) -> str:
    found, metric, split = pair.primary, pair.metric, pair.split
    interval = " to ".join(map(metric.change, found.interval)) if found.interval else ""
    parts = [None, None] if split is None else [split.direction, split.length]
    told = [
        "" if part is None else f"{metric.change(part.mean)} ({' to '.join(map(metric.change, part.interval))})"
        for part in parts
    ]
    ratio = "" if split is None or split.ratio is None else f"{split.ratio:.2f}"
    cells = [
        f"`{pair.method}`",
        metric.number(found.baseline_mean),
        metric.change(found.mean),
        interval,
        pair.verdict,
        " and ".join(pair.causes),
        ratio,
        *told,
        str(len(pair.seeds)),
    ]
    return f"| {' | '.join(cells)} |"


def _tuned(tuning: Mapping[str, Any]) -> str:
    methods = _methods(tuning)
    chosen = "; ".join(
        f"`{method['method']}`: " + ", ".join(f"{key} = {value}" for key, value in method["chosen"].items())
        for method in methods
    )
    budget = str(tuning["budget"])
    return f"{budget[0].upper()}{budget[1:]}. Chosen: {chosen}."


def _methods(tuning: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(tuning["methods"])


def _edges(tuning: Mapping[str, Any]) -> Iterator[str]:
    """Methods whose best choice was the first or the last that was tried."""
    names = [f"`{method['method']}`" for method in _methods(tuning) if method.get("edges")]
    if names:
        yield f"At the edge of what was tried, so that another value might do better still: {', '.join(names)}."


def _server_rate(tuning: Mapping[str, Any]) -> Iterator[str]:
    """Which server learning rate tuning would have chosen."""
    scores = {
        str(method["method"]): max(trial["mean"] or 0.0 for trial in method["trials"])
        for method in _methods(tuning)
        if method["method"] in SERVER_RATES
    }
    if len(scores) > 1:
        best = max(scores, key=scores.__getitem__)
        yield f"Of the server's learning rates, `{best}` scored best where they were tuned."


def _rising(pairs: Sequence[Pair]) -> Iterator[str]:
    names = dict.fromkeys(name for pair in pairs for name in pair.rising)
    if names:
        yield f"Still getting better at the end, so not converged: {', '.join(f'`{name}`' for name in names)}."


def _small(board: Board) -> Iterator[str]:
    """Differences that are shown and too small to matter."""
    decided = [pair for pair in board.comparison.pairs if pair.verdict in ("better", "worse")]
    small = [pair for pair in decided if is_small(pair)]
    if small:
        names, margin = ", ".join(f"`{pair.method}`" for pair in small), small[0].metric.amount(small[0].margin or 0.0)
        yield f"Shown, and yet smaller than what would matter ({margin}): {names}."


def _unsplit(pairs: Sequence[Pair]) -> Iterator[str]:
    """Why there is no telling direction from length."""
    for pair in best_first(pairs):
        if pair.split is not None and pair.split.direction is None and pair.split.reason:
            yield f"`{pair.method}` has no parts: {pair.split.reason}."


def _absent(boards: Sequence[Board]) -> Iterator[str]:
    there = {board.name for board in boards}
    absent = [f"- {own.title}: `{key}`" for key, own in PROBLEMS.items() if f"{LEADERBOARD}-{key}" not in there]
    if absent:
        yield from ("## Not run yet", "", "`python -m study command NAME` prints the command.", "", *absent, "")
