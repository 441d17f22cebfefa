"""The result pages: prose in ``study/pages``, every number and table from the JSON files in ``docs/results/data``.

A template asks for a table by the name of its file, ``{{ pairs_table("earlier/main") }}``, or for one number in a
sentence, ``{{ gain("earlier/full", problem="MNIST") }}``. Nothing is computed here but counts and rounding.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

Row = Mapping[str, Any]

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "data"
PAGES = {
    "paper.md": "docs/results/paper.md",
    "methods.md": "docs/results/methods.md",
    "earlier.md": "docs/results/earlier.md",
    "which_method.md": "docs/guide/which_method.md",
}
"""Templates, and what they become."""
LEADERBOARD = ("mnist001", "fashion001", "mnist01", "fashion01", "heart")
"""Problems on which all methods were run."""
SKEWED = ("demo", "tuned-mnist", "tuned-fashion_mnist", *LEADERBOARD[:4])
"""Problems with label skew."""
CORRECTIONS = "fedavg,fedavgm(server_momentum=0.5),fedacg,drift_correction,scaffold,fedcm,feddyn,fedprox,fedavg+ecgr"
ALL = f"'{CORRECTIONS},fedavg@lda,fedavg@ridge'"
PROBLEMS = {
    "digits": ("Digits, ten clients, alpha 0.05", f"demo --rounds 120 --methods {ALL}"),
    "heart": ("Heart disease, four hospitals", f"hospitals/heart_disease --seeds 20 --methods '{CORRECTIONS}'"),
    "mnist001": ("MNIST, ten clients, alpha 0.01", f"study/boards.py:mnist --methods {ALL}"),
    "mnist01": ("MNIST, ten clients, alpha 0.1", f"study/boards.py:mnist --set partition.alpha=0.1 --methods {ALL}"),
    "fashion001": ("Fashion-MNIST, ten clients, alpha 0.01", f"study/boards.py:fashion --methods {ALL}"),
    "fashion01": (
        "Fashion-MNIST, ten clients, alpha 0.1",
        f"study/boards.py:fashion --set partition.alpha=0.1 --methods {ALL}",
    ),
    "fashion100": (
        "Fashion-MNIST, 100 clients, a tenth a round",
        f"study/boards.py:hundred --methods {ALL}",
    ),
}
"""The leaderboard: a folder of data, its title, and what `ecgr compare` was given."""
VERDICTS = ("better", "worse", "equivalent", "not decided", "diverged")
DIGITS = {"points": 1, "AUC": 4}
"""Decimals that a difference deserves."""


@cache
def read(name: str) -> Any:
    """A data file."""
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def pairs(name: str, **wanted: object) -> list[Row]:
    """The pairs of a comparison that have these values."""
    return [pair for pair in read(name)["pairs"] if all(pair[key] == value for key, value in wanted.items())]


def table(columns: Mapping[str, Callable[[Row], object]], rows: Iterable[Row]) -> str:
    """A Markdown table with a function for each column."""
    lines = [list(columns), ["---"] * len(columns)]
    lines += [[str(cell(row)) for cell in columns.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def signed(value: float, unit: str = "points") -> str:
    """A difference with as many digits as it deserves.

    >>> signed(1.204), signed(-0.00312, "AUC")
    ('+1.2', '-0.0031')
    """
    return f"{value:+.{DIGITS[unit]}f}"


def bounds(interval: Sequence[float] | None, unit: str = "points") -> str:
    """An interval; empty where one seed gives none."""
    return "" if interval is None else " to ".join(signed(bound, unit) for bound in interval)


def with_interval(pair: Row, unit: str = "points") -> str:
    """A difference and its interval; empty where there is none to give."""
    if pair["difference"] is None:
        return ""
    found = bounds(pair["interval"], unit)
    return signed(pair["difference"], unit) + (f" ({found})" if found else "")


def gain(name: str, **wanted: object) -> str:
    """One difference for a sentence: ``+1.2 points (95 % CI +0.5 to +1.9)``."""
    (pair,) = pairs(name, **wanted)
    unit = read(name)["unit"]
    return f"{signed(pair['difference'], unit)} {unit} (95 % CI {bounds(pair['interval'], unit)})"


def made_by(*names: str) -> str:
    """The commits of several data files, in order."""
    commits = dict.fromkeys(commit for name in names for commit in read(name)["commits"])
    return f"{', '.join(commits)}; verdicts by {read(names[0])['analysed_by']}"


def raised(name: str) -> tuple[int, int]:
    """How many single seeds ended above their baseline, and of how many."""
    both = [
        own > plain
        for pair in pairs(name)
        for plain, own in zip(pair["baseline_scores"], pair["method_scores"], strict=True)
    ]
    return sum(both), len(both)


def counted(name: str, verdict: str) -> str:
    """How many pairs of a comparison have a verdict, for a sentence."""
    return f"{len(pairs(name, verdict=verdict))} of {len(pairs(name))}"


def pairs_table(name: str) -> str:
    """Every pair of a comparison."""
    return table(
        {
            "problem": lambda pair: pair["problem"],
            "method": lambda pair: f"`{pair['method']}`",
            "baseline, %": lambda pair: f"`{pair['baseline']}` {pair['score']:.1f}",
            "difference, points (95 % CI)": with_interval,
            "seeds": lambda pair: len(pair["seeds"]),
            "p (Holm)": lambda pair: "" if pair["p"] is None else f"{pair['p']:.3g}",
            "verdict": lambda pair: pair["verdict"],
        },
        pairs(name),
    )


def board(name: str) -> str:
    """One problem with all its methods, tuned: where it comes from, then a table."""
    found = read(f"earlier/{name}")
    unit, rows = found["unit"], found["pairs"]
    (chosen,) = [own["chosen"] for own in found["tuning"] if own["method"] == rows[0]["baseline"]]
    known = [pair for pair in rows if pair["score"] is not None]
    score = f"{known[0]['score']:.1f} %" if unit == "points" else f"{known[0]['score']:.3f} {unit}"
    rising = "still improving" if is_rising(name) else "no longer improving, by the rule of that time,"
    columns: dict[str, Callable[[Row], object]] = {
        "method": lambda pair: f"`{pair['method']}`",
        "lr": lambda pair: f"{pair['lr']:g}{' (edge)' if pair['at_edge'] else ''}",
        f"difference, {unit} (95 % CI)": lambda pair: with_interval(pair, unit),
        "verdict": lambda pair: pair["verdict"],
        "rounds to target (FedAvg's)": _rounds,
        "distance": lambda pair: "" if pair["distance"] is None else f"{pair['distance']:.1f}",
        "difference at equal distance (97.5 % CI)": lambda pair: _at_equal_distance(pair, unit),
    }
    return "\n".join(
        [
            *("```text", found["command"], "```", ""),
            f"Commits {made_by(f'earlier/{name}')}. {rows[0]['rounds']} rounds, {len(rows[0]['seeds'])} seeds. FedAvg:"
            f" {score} at learning rate {chosen:g}; it was {rising} at the end.",
            *("", table(columns, rows)),
        ]
    )


def _rounds(pair: Row) -> str:
    plain, own = pair["rounds_to_target"] or (None, None)
    return "" if plain is None else f"{own:.1f} ({plain:.1f})"


def _at_equal_distance(pair: Row, unit: str) -> str:
    found = pair["at_equal_distance"]
    return "" if found is None else f"{signed(found['difference'], unit)} ({bounds(found['interval_97.5'], unit)})"


def is_rising(name: str) -> bool:
    """Whether the baseline was still improving in its last rounds."""
    return any(pair["baseline"] in pair["still_rising"] for pair in pairs(f"earlier/{name}"))


def verdicts(method: str, names: Iterable[str]) -> Counter[str]:
    """How often each verdict was given to a method on these problems."""
    return Counter(pair["verdict"] for name in names for pair in pairs(f"earlier/{name}", method=method))


def better_on(method: str, names: Sequence[str] = SKEWED) -> str:
    """On how many problems a method was better, for a sentence.

    >>> better_on("fedavgm(server_momentum=0.5)")
    '4 of 4'
    """
    found = verdicts(method, names)
    return f"{found['better']} of {found.total()}"


def overview() -> str:
    """All methods over the leaderboard's problems: verdicts, and how far below the best of a problem each ended."""
    short: dict[str, list[float]] = {}
    for name in LEADERBOARD:
        found = [pair for pair in pairs(f"earlier/{name}") if pair["difference"] is not None]
        scale = 1 if read(f"earlier/{name}")["unit"] == "points" else 100
        ends = {pair["method"]: scale * pair["difference"] for pair in found} | {"fedavg": 0.0}
        for method, end in ends.items():
            short.setdefault(method, []).append(max(ends.values()) - end)
    counts = {method: verdicts(method, LEADERBOARD) for method in short}
    columns: dict[str, Callable[[Row], object]] = {"method": lambda row: f"`{row['method']}`"}
    for verdict in VERDICTS:
        columns[verdict] = lambda row, verdict=verdict: (  # type: ignore[misc]
            "" if row["method"] == "fedavg" else counts[row["method"]][verdict]
        )
    columns["below the best, mean"] = lambda row: f"{fmean(short[row['method']]):.1f}"
    columns["at worst"] = lambda row: f"{max(short[row['method']]):.1f}"
    columns["problems"] = lambda row: len(short[row["method"]])
    order = sorted(short, key=lambda method: (counts[method]["diverged"], fmean(short[method])))
    return table(columns, [{"method": method} for method in order])


def measured_problems() -> dict[str, Any]:
    """The leaderboard's comparisons that are finished, in order."""
    return {name: read(f"{name}/comparison") for name in PROBLEMS if (DATA / name / "comparison.json").is_file()}


def change(value: float, metric: Row) -> str:
    """A difference: in points where the metric is a share of samples, else as it is."""
    return signed(100 * value) if metric["name"] == "accuracy" else f"{value:+.3f}"


def level_of(value: float, metric: Row) -> str:
    """A score: in per cent where the metric is a share of samples, else as it is."""
    return f"{100 * value:.1f} %" if metric["name"] == "accuracy" else f"{value:.3f}"


def end_of(pair: Row) -> str:
    """Where a method ends, beside the baseline: ``+1.2 (+0.5 to +1.9)``."""
    found = pair["difference"]
    if found is None:
        return ""
    within = "" if found["interval"] is None else " to ".join(change(b, pair["metric"]) for b in found["interval"])
    return change(found["mean"], pair["metric"]) + (f" ({within})" if within else "")


def speed_of(pair: Row) -> str:
    """How many times sooner it is where the baseline ends; empty where too few seeds get there."""
    found = pair["speed"]
    if found is None or found["factor"] is None:
        return ""
    within = "" if found["interval"] is None else f" ({found['interval'][0]:.1f} to {found['interval'][1]:.1f})"
    return f"{found['factor']:.1f} x{within}"


def problem(name: str) -> str:
    """One problem of the leaderboard: its command, what the references say, and a row for each method."""
    found, origin = read(f"{name}/comparison"), read(f"{name}/source")
    pairs_there = found["pairs"]
    metric = found["metric"]
    base = pairs_there[0]["baseline_score"]
    commits = ", ".join(commit[:7] for commit in origin["commits"])
    beside = ", ".join(f"{own['name']} {level_of(own['score'], metric)}" for own in found["references"])
    unit = "points" if metric["name"] == "accuracy" else metric["name"]
    level = (
        "had levelled off" if found["baseline"] not in {m for p in pairs_there for m in p["rising"]} else "still gained"
    )
    columns: dict[str, Callable[[Row], object]] = {
        "method": lambda pair: f"`{pair['method']}`",
        f"end, {unit} (95 % CI)": end_of,
        "sooner (95 % CI)": speed_of,
        "verdict": lambda pair: pair["verdict"],
        "levelled off": lambda pair: "yes" if pair["levelled_off"] else "no",
        "of the gap to pooled": lambda pair: "" if pair["gap_closed"] is None else f"{100 * pair['gap_closed']:.0f} %",
    }
    return "\n".join(
        [
            *("```text", f"ecgr compare {PROBLEMS[name][1]}", "```", ""),
            f"{found['rounds']} rounds, {len(found['seeds'])} seeds, commit {commits}. FedAvg:"
            f" {level_of(base, metric)}; it {level}. {beside[:1].upper()}{beside[1:]}.",
            *("", table(columns, pairs_there)),
        ]
    )


def standing() -> str:
    """Every method on every problem of the leaderboard, in a cell: the end, how much sooner, and the verdict."""
    there = measured_problems()
    methods = dict.fromkeys(pair["method"] for found in there.values() for pair in found["pairs"])

    def cell(name: str, method: str) -> str:
        own = [pair for pair in there[name]["pairs"] if pair["method"] == method]
        if not own:
            return ""
        if own[0]["difference"] is None:
            return str(own[0]["verdict"])
        told = change(own[0]["difference"]["mean"], own[0]["metric"])
        told = f"**{told}**" if own[0]["verdict"] in ("better", "worse") else told
        speed = own[0]["speed"]
        return told + (f", {speed['factor']:.1f} x" if speed and speed["factor"] and speed["shown"] else "")

    columns: dict[str, Callable[[Row], object]] = {"method": lambda row: f"`{row['method']}`"}
    for name in there:
        columns[PROBLEMS[name][0]] = lambda row, name=name: cell(name, row["method"])  # type: ignore[misc]
    return table(columns, [{"method": method} for method in methods])


SKEW = ("digits", "mnist001", "fashion001", "mnist01", "fashion01", "fashion100")
"""Problems of the leaderboard with label skew."""
IMAGES = SKEW[1:]
"""Those of them with pictures of MNIST and Fashion-MNIST."""


def own_pairs(method: str, names: Iterable[str]) -> list[Row]:
    """The pairs of a method on those of the leaderboard's problems that are there."""
    there = measured_problems()
    return [pair for name in names if name in there for pair in there[name]["pairs"] if pair["method"] == method]


def in_front(method: str, names: Iterable[str] = SKEW) -> tuple[int, int]:
    """On how many problems a method was shown ahead or better, and of how many."""
    own = own_pairs(method, names)
    return sum(pair["verdict"] in ("ahead", "better") for pair in own), len(own)


def ends_in_front(method: str, names: Iterable[str] = SKEW) -> str:
    """The range of the differences at the end where the method was shown ahead or better: ``+1.3 to +4.6``."""
    own = [pair for pair in own_pairs(method, names) if pair["verdict"] in ("ahead", "better")]
    return _range([100 * pair["difference"]["mean"] for pair in own], "{:+.1f}")


def factors(method: str, names: Iterable[str] = SKEW) -> str:
    """The range of the factors of speed, where the method was shown sooner: ``2.4 to 3.9``."""
    own = own_pairs(method, names)
    return _range([pair["speed"]["factor"] for pair in own if (pair["speed"] or {}).get("shown") == "sooner"], "{:.1f}")


def _range(values: list[float], form: str) -> str:
    return " to ".join(dict.fromkeys(form.format(value) for value in (min(values), max(values)))) if values else "none"


def found_on(method: str, *names: str) -> str:
    """What problems of the leaderboard say of a method, in a cell: verdicts, range of the ends, how much sooner."""
    own = own_pairs(method, names)
    if not own:
        return "not measured"
    counts = Counter(pair["verdict"] for pair in own)
    metric = own[0]["metric"]
    points = metric["name"] == "accuracy"
    told = [", ".join(f"{verdict} {n} of {len(own)}" for verdict, n in counts.items())]
    if ends := [pair["difference"]["mean"] for pair in own if pair["difference"] is not None]:
        shown = dict.fromkeys(change(end, metric) for end in (min(ends), max(ends)))
        told.append(f"{' to '.join(shown)} {'points' if points else 'AUC'}")
    if (sooner := factors(method, names)) != "none":
        told.append(f"{sooner} x")
    return "; ".join(told)


def claims_table() -> str:
    """What the paper says, what was measured, and the verdict of the rules of that time."""
    return table(
        {
            "the paper says": lambda row: row["claim"],
            "measured (points, 95 % CI, seeds)": lambda row: row["measured"],
            "verdict": lambda row: row["verdict"],
            "sweep": lambda row: f"`{row['command'].removeprefix('ecgr sweep ').removesuffix(' --workers 2')}`",
        },
        read("earlier/claims")["claims"],
    )


def tissue_table() -> str:
    """LC25000: the paper's numbers beside ours."""

    def levels(key: str, side: int) -> Callable[[Row], str]:
        return lambda pair: " / ".join(f"{value:.1f}" for value in pair[key][side])

    return table(
        {
            "method": lambda pair: f"`{pair['method']}`, {pair['problem'].removeprefix('LC25000, ')}",
            "plain, last / best, %": levels("ours_final_best", 0),
            "with ECGR": levels("ours_final_best", 1),
            "the paper, plain": levels("paper_final_best", 0),
            "the paper, with ECGR": levels("paper_final_best", 1),
            "difference, points (95 % CI)": with_interval,
            "seeds": lambda pair: len(pair["seeds"]),
            "verdict": lambda pair: pair["verdict"],
        },
        pairs("earlier/lc25000"),
    )


def theory_table() -> str:
    """How often the theory's assumption and conclusion held, and what regulation did to the server's step."""

    def percent(key: str) -> Callable[[Row], str]:
        return lambda row: f"{100 * row[key]:.0f} %"

    def median(key: str) -> Callable[[Row], str]:
        return lambda row: f"{row[key][1]:.2f} ({row[key][0]:.2f} to {row[key][2]:.2f})"

    return table(
        {
            "data, alpha": lambda row: f"{row['problem']}, {row['alpha']:g}",
            "updates": lambda row: row["updates"],
            "assumption held": percent("assumption"),
            "conclusion held": percent("conclusion"),
            "conclusion, given the assumption": percent("conclusion_given_assumption"),
            "without it": percent("conclusion_given_not_assumption"),
            "beta ≥ \\|a\\|²/\\|b\\|²": percent("beta_covers"),
            "\\|a\\|²/\\|b\\|²: median (5 to 95 %)": median("squared_ratio"),
            "length of the server's step ÷ plain: median (5 to 95 %)": median("server_step_ratio"),
            "cosine with the true gradient: plain, regulated": lambda row: ", ".join(
                f"{value:.2f}" for value in row["cosine_before_after"]
            ),
        },
        read("earlier/theory")["runs"],
    )


def share_range(key: str) -> str:
    """The least and the largest share over the theory's runs."""
    found = [100 * run[key] for run in read("earlier/theory")["runs"]]
    return f"{min(found):.0f} to {max(found):.0f} %"


def collapse_table() -> str:
    """Every run of the collapse."""
    return table(
        {
            "data": lambda run: run["problem"],
            "lr, alpha, beta": lambda run: f"{run['lr']:g}, {run['alpha']:g}, {run['beta']:g}",
            "the paper": lambda run: run["paper"],
            "buffers": lambda run: run["buffers"],
            "last five rounds, %": lambda run: f"{run['score']:.1f}",
            "rounds with a negative variance": lambda run: f"{run['negative_rounds']} of {run['rounds']}",
            "smallest factor": lambda run: f"{run['smallest_factor']:.2f}",
            "collapsed": lambda run: "yes" if run["collapsed"] else "no",
        },
        read("earlier/collapse")["runs"],
    )


def collapsed(**wanted: object) -> str:
    """How many runs with these values collapsed, for a sentence."""
    runs = [run for run in read("earlier/collapse")["runs"] if all(run[key] == own for key, own in wanted.items())]
    return f"{sum(run['collapsed'] for run in runs)} of {len(runs)}"


AIMED = {
    "ecgr": "ECGR, which has no target",
    "gradient: own steps >= 0": "true gradient; each client's own steps, weights ≥ 0",
    "gradient: own steps": "true gradient; own steps, weights of any sign",
    "epoch: own steps >= 0": "an epoch on all data; own steps, weights ≥ 0",
    "epoch: own steps": "an epoch on all data; own steps, weights of any sign",
    "previous: own steps >= 0": "the last global step; own steps, weights ≥ 0",
    "momentum: own steps >= 0": "the server's momentum; own steps, weights ≥ 0",
    "control: own steps >= 0": "SCAFFOLD's control variate; own steps, weights ≥ 0",
    "epoch: clients >= 0": "an epoch on all data; one weight a client, chosen jointly",
    "epoch: all steps >= 0": "an epoch on all data; one weight a step, chosen jointly for all clients",
    "epoch: itself": "the step of the epoch on all data itself",
    "gradient: itself": "the true gradient itself",
}
"""Targets, and what is weighted to reach them."""


def aimed_table() -> str:
    """What aiming local steps at a target gave."""
    return table(
        {
            "data": lambda pair: pair["problem"],
            "target; what is weighted": lambda pair: AIMED[pair["method"]],
            "difference, points (95 % CI)": with_interval,
            "seeds": lambda pair: len(pair["seeds"]),
            "verdict": lambda pair: pair["verdict"],
            "cosine with the target: plain, its own": lambda pair: ", ".join(f"{c:.2f}" for c in pair["cosine"] or ()),
        },
        pairs("earlier/ceiling"),
    )


WEIGHTED = {
    "fedavg": "FedAvg",
    "fedavg+ecgr": "ECGR: own steps, from the steps alone",
    "own steps": "one weight a step, each client by itself, length kept",
    "clients": "one weight a client, length kept",
    "clients, any length": "one weight a client, any length",
    "all steps": "one weight a step, for all clients jointly, length kept",
    "server steps": "FedAvg, then gradient steps on the samples",
    "samples alone": "the samples alone",
}
"""What the server's samples choose."""


def weights_table(name: str) -> str:
    """What weights chosen by the loss on the server's samples gave; the accuracy early, at a third, and at the end."""
    found = read(name)
    rounds = found["rounds"]
    own = {pair["method"]: pair for pair in found["pairs"]}
    columns: dict[str, Callable[[Row], object]] = {"what is weighted": lambda row: WEIGHTED[row["method"]]}
    for at, mark in enumerate((rounds // 10, rounds // 3, rounds)):
        columns[f"after {mark}, %"] = lambda row, at=at: f"{100 * found['scores'][row['method']][at]:.1f}"  # type: ignore[misc]
    columns["end, points (95 % CI)"] = lambda row: end_of(own[row["method"]]) if row["method"] in own else ""
    columns["sooner (95 % CI)"] = lambda row: speed_of(own[row["method"]]) if row["method"] in own else ""
    columns["verdict"] = lambda row: own[row["method"]]["verdict"] if row["method"] in own else "baseline"
    return table(columns, [{"method": method} for method in WEIGHTED if method in found["scores"]])


def weighed(key: str) -> Any:
    """A fact of the weights chosen by loss: samples, rounds, the commit."""
    return read("weights/digits")[key]


def weighed_at(method: str, mark: int) -> str:
    """A method's accuracy early, at a third, or at the end, in per cent."""
    return f"{100 * read('weights/digits')['scores'][method][mark]:.1f}"


def ended(method: str) -> str:
    """Where a choice of weights ended, beside FedAvg."""
    (pair,) = [pair for pair in read("weights/digits")["pairs"] if pair["method"] == method]
    return end_of(pair)


def render(template: str) -> str:
    """One page."""
    places = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "pages"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    known = (
        *(pairs_table, board, overview, claims_table, tissue_table, theory_table, collapse_table, aimed_table),
        *(weights_table, weighed, weighed_at, ended),
        *(problem, standing, found_on, measured_problems, in_front, ends_in_front, factors),
        *(gain, raised, counted, made_by, better_on, share_range, collapsed),
    )
    names = {"SKEW": SKEW, "IMAGES": IMAGES, "SKEWED": SKEWED, "LEADERBOARD": LEADERBOARD, "PROBLEMS": PROBLEMS}
    return places.get_template(template).render({own.__name__: own for own in known} | names)


def rebuild() -> None:
    """Write every page."""
    for template, page in PAGES.items():
        (ROOT / page).write_text(render(template), encoding="utf-8")
