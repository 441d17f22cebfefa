"""LC25000, real tissue: the paper's table beside ours, and the claim about it."""

from collections.abc import Iterable, Iterator
from statistics import fmean

from ecgr.analysis.comparison import Pair
from ecgr.analysis.metrics import RunSummary
from study.data import ALGORITHMS, Compared, Study
from study.verdicts import Claim, Sweep, combine, gain, gains

NAME: Sweep = "lc25000"
PAPER = {
    "fedavg": ((0.5209, 0.6150), (0.5304, 0.6186)),
    "fedprox": ((0.5207, 0.6154), (0.5281, 0.6210)),
    "fednova": ((0.5160, 0.6351), (0.5208, 0.6399)),
    "scaffold": ((0.4984, 0.6387), (0.5024, 0.6415)),
}
"""Final and best accuracy, plain and with ECGR, as the paper prints them."""
SAYS = "LC25000, ResNet-18: gains of 0.4 to 1 point (figure 6)"
SEEDS = 5
"""As in the paper."""
BUFFERS = {"average": "buffers averaged", "as_weights": "buffers as weights"}


def tissue_claims(study: Study) -> Iterable[Claim]:
    """One row; a gain of any size, as the paper's smallest is 0.4 points."""
    rows = [pair for pair in _pairs(study.compared.get(NAME)) if _buffers(pair.setting) == "average"]
    if not rows:
        yield Claim(SAYS, "not run here", "not measured", NAME)
        return
    told = "; ".join(f"{_title(pair)} {gain(pair)}" for pair in rows)
    yield Claim(SAYS, told, combine([gains(pair.primary) for pair in rows]), NAME)


def tissue_line(study: Study) -> list[str]:
    """A line for somebody who reads no further, where it was run."""
    told = "; ".join(f"{_title(pair)} {gain(pair)}" for pair in _pairs(study.compared.get(NAME)))
    return [f"LC25000, real tissue, reduced, points with ECGR over plain training: {told}."] if told else []


def untried(study: Study) -> list[str]:
    """The algorithms that have fewer than the paper's five seeds here."""
    pairs = _pairs(study.compared.get(NAME))
    seeds = {name: max((len(p.seeds) for p in pairs if _algorithm(p) == name), default=0) for name in ALGORITHMS}
    return [f"{ALGORITHMS[name]} ({count} seeds)" for name, count in seeds.items() if count < SEEDS]


def tissue_section(study: Study, commands: Iterable[str]) -> Iterator[str]:
    """The paper's numbers beside ours, where it was run."""
    compared = study.compared.get(NAME)
    if compared is None:
        return
    yield from ("## LC25000, real tissue", "", *commands)
    yield (
        "Reduced in `experiments/study/tissue.toml`: 5,000 pictures (1,000 a class) instead of 25,000, of 32 pixels"
        " instead of 224, three eighths of them for training, batches of 48, 20 rounds instead of 100, at ten times the"
        " learning rate; ResNet-18 with random weights, all pictures of a tile on one side of the split, beta 0.5 for"
        " FedNova. *Final* is the last round, *best* the best round of a run, both in the mean over seeds; the"
        " difference with its interval is of the last five rounds, as everywhere. The paper's are one number each."
    )
    yield ""
    yield (
        "| algorithm | plain, final / best, % | with ECGR | the paper, plain | with ECGR | difference, points (95 %"
        " interval) | `ecgr compare` |"
    )
    yield "|---|---|---|---|---|---|---|"
    for pair in _pairs(compared):
        printed = [_levels(*numbers) for numbers in PAPER[_algorithm(pair)]]
        ours = [_level([run for run in compared.runs if _is_side(run, pair, own)]) for own in (False, True)]
        yield f"| {_title(pair)} | {' | '.join([*ours, *printed, gain(pair), pair.verdict])} |"
    yield ""


def _pairs(compared: Compared | None) -> list[Pair]:
    found = [] if compared is None else [pair for pair in compared.comparison.pairs if pair.primary.mean is not None]
    return sorted(found, key=lambda pair: (list(ALGORITHMS).index(_algorithm(pair)), pair.setting))


def _algorithm(pair: Pair) -> str:
    return pair.algorithm.partition("(")[0]


def _buffers(setting: str) -> str:
    """What became of the buffers; averaged unless the setting says otherwise."""
    return "as_weights" if "as_weights" in setting else "average"


def _title(pair: Pair) -> str:
    name = ALGORITHMS[_algorithm(pair)]
    return f"{name}, {BUFFERS[_buffers(pair.setting)]}" if "run.buffers" in pair.setting else name


def _is_side(run: RunSummary, pair: Pair, regulated: bool) -> bool:
    same = (run.setting, run.algorithm) == (pair.setting, pair.algorithm) and run.seed in pair.seeds
    return same and run.regulator == (pair.regulator if regulated else pair.baseline)


def _level(runs: list[RunSummary]) -> str:
    last = [run.values[-1] for run in runs]
    best = [max(value for value in run.values if value is not None) for run in runs]
    return _levels(fmean(value for value in last if value is not None), fmean(best))


def _levels(final: float, best: float) -> str:
    return f"{100 * final:.2f} / {100 * best:.2f}"
