"""The sections of docs/results/paper.md, as lines of Markdown."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ecgr.analysis.comparison import Pair
from ecgr.analysis.quantities import ACCURACY
from ecgr.analysis.statistics import sign_flip_floor
from study.ablations import ablation_name, ablation_pairs, missing_ablations
from study.collapse import is_reported, is_usual
from study.data import ALGORITHMS, DATASETS, EXAMINED, EXTENSIONS, REGULATORS, Study, dataset_of
from study.labels import sort_entries
from study.tissue import untried
from study.verdicts import RULES, Claim, Measurement

BARS = "mean and 95 % interval over seeds, blue where the interval excludes zero; dots: the seeds"
COMMANDS = {
    "main": ("ecgr sweep study/main --workers 2", "ecgr compare runs/study-main"),
    "controls": (
        "ecgr sweep study/controls --workers 2",
        "ecgr compare runs/study-controls --treatment algorithm.server_lr --treatment run.step_control",
    ),
    "ablations": ("ecgr sweep study/ablations --workers 2", "ecgr compare runs/study-ablations"),
    "steps": ("ecgr sweep study/steps --workers 2", "python -m study figures runs/study-steps"),
    "collapse": ("ecgr sweep study/collapse --workers 2", "python -m study figures runs/study-collapse"),
    "full": ("ecgr sweep study/full --workers 2", "ecgr compare runs/study-full"),
    "lemma": ("pytest tests/study/test_theory.py",),
    "lc25000": ("ecgr sweep study/lc25000 --workers 2", "ecgr compare runs/study-lc25000"),
}


def how(study: Study) -> Iterable[str]:
    """What was run, on what, and by which rules verdicts are given."""
    made = study.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    main = study.compared["main"].comparison
    yield (
        f"Commit {made['commit']}, {made['machine']['cores']} cores, {versions}. The reductions stand in"
        " `experiments/study/bases/`: a round has as many steps in all as in the paper, on fewer images with smaller"
        " batches; how they fall to the clients is another draw with the same alpha. MNIST and Fashion-MNIST: 1/32 of"
        " the training images, batches of 4. CIFAR-10: 1/16, batches of 8, 16x16 pixels, a quarter of the width, 30"
        " rounds with the learning rate halved every 3, 2,500 test images; CIFAR-100 likewise, from a set of 10,000"
        " training and 2,000 test images. So these are not the paper's own numbers: they decide about trends, under"
        " this protocol."
    )
    yield ""
    yield (
        "Pairs by seed; what counts is the mean accuracy of the last five rounds; intervals are paired t at 95 %; p"
        " from exact sign flips, after Holm over all pairs of a comparison ([statistics](../reference/statistics.md))."
        " With 5 seeds p cannot fall below 0.0625, with 3 not below 0.25: such pairs can be left open or contradicted,"
        f" never shown. With 10 it is {sign_flip_floor(10):.4f}, and {main.family} times that in a family of"
        f" {main.family}: a gain is then shown only if it was there with all or nearly all of the ten seeds."
    )
    yield ""
    yield "Verdicts follow rules (`study/verdicts.py`), not a hand:"
    yield ""
    yield from (f"- {rule}" for rule in RULES)
    yield ""
    yield (
        "From the runs to this page: the sweeps below, `python -m study gather runs`, which writes `data/`, and"
        f" `make results`.{_added(study)}"
    )
    yield ""


def _added(study: Study) -> str:
    """The commits of runs that came later than the first sweeps."""
    told = [f"{name} {', '.join(own[:7] for own in commits)}" for name, commits in study.later.items() if commits]
    return f" Runs that came later were made by commit: {'; '.join(told)}." if told else ""


def claim_table(found: Sequence[Claim]) -> Iterable[str]:
    """What the paper says, what was measured, the verdict."""
    yield "| the paper says | measured (points: difference, 95 % interval, seeds) | verdict | command |"
    yield "|---|---|---|---|"
    for claim in found:
        command = f"`{COMMANDS[claim.sweep][0]}`"
        yield f"| {_cell(claim.says)} | {_cell(claim.measured)} | {claim.verdict} | {command} |"


def beyond_table(found: Iterable[Measurement]) -> Iterable[str]:
    """What was measured besides, without a verdict."""
    yield "| beyond what the paper claims | measured | command |"
    yield "|---|---|---|"
    for row in found:
        yield f"| {_cell(row.what)} | {_cell(row.measured)} | `{COMMANDS[row.sweep][0]}` |"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def commands(name: str) -> Iterable[str]:
    """A sweep's commands as a block."""
    yield "```"
    yield from COMMANDS[name]
    yield "```"
    yield ""


def _later(study: Study, name: str) -> Iterable[str]:
    """The sweeps that added seeds, once they did."""
    if name in study.later:
        sweeps = [f"`ecgr sweep study/{sweep} --workers 2`" for sweep, to in EXTENSIONS.items() if to == name]
        yield from (f"Seeds that were added later come from {' and '.join(sweeps)}, as far as these were run.", "")


def _pair_rows(pairs: Iterable[Pair], name: str, who: Callable[[Pair], str]) -> Iterable[str]:
    yield _row("data", name, "plain, %", "difference, points", "95 % interval", "seeds", "p (Holm)", "`ecgr compare`")
    yield "|---|---|---|---|---|---|---|---|"
    for pair in pairs:
        found = pair.primary
        if found.mean is None or found.baseline_mean is None:
            continue
        low, high = map(ACCURACY.change, found.interval) if found.interval else ("", "")
        p = f"{found.p_holm:.3g}" if found.p_holm is not None else ""
        yield (
            f"| {DATASETS[dataset_of(pair.setting)]} | {who(pair)} | {100 * found.baseline_mean:.2f} |"
            f" {ACCURACY.change(found.mean)} | {low}{' to ' if low else ''}{high} | {len(pair.seeds)} | {p} |"
            f" {pair.verdict} |"
        )


def main_section(study: Study) -> Iterable[str]:
    """Every data set and algorithm."""
    yield from ("## The main comparison", "", *commands("main"), *_later(study, "main"))
    yield from _pair_rows(study.compared["main"].ordered, "algorithm", lambda pair: ALGORITHMS[pair.algorithm])
    yield from ("", "![differences](images/differences.png)", "", f"Squares and bars: {BARS}.", "")
    yield from ("![accuracy over rounds](images/accuracy.png)", "", "Lines: means over seeds; bands: their range.", "")


def control_section(study: Study) -> Iterable[str]:
    """What else could explain a gain."""
    if "controls" not in study.compared:
        return
    yield from ("## Controls", "", *commands("controls"), *_later(study, "controls"))
    yield from _pair_rows(study.compared["controls"].ordered, "instead of plain", lambda pair: f"`{pair.regulator}`")
    yield from ("", "![controls](images/controls.png)", "", f"Squares and bars: {BARS}.", "")
    lengths = [(e["config"]["data.name"], e["norm_ratio"]["q50"]) for e in study.steps["theory"] if _strong(e)]
    longer = ", ".join(
        f"{100 * (length - 1):.0f} % on {DATASETS[data]}" for data, length in sorted(lengths, reverse=True)
    )
    yield f"ECGR made the server's step longer by {longer} (medians, one seed each): more than the control's 5 %."
    yield ""
    yield (
        "Three seeds were planned. On MNIST the rows with ten were extended after three had left them open and the main"
        " comparison had shown a gain."
    )
    yield ""


def ablation_section(study: Study) -> Iterable[str]:
    """Other learning rates, heterogeneity, beta."""
    ablations = study.compared.get("ablations")
    if ablations is None:
        return
    yield from ("## Ablations", "", *commands("ablations"))
    yield "One thing at a time differs from lr 0.001, alpha 0.01 and beta 0.2. Each row is ECGR against plain training."
    yield ""
    pairs = [pair for data in EXAMINED for pair in ablation_pairs(ablations, data)]
    yield from _pair_rows(pairs, "algorithm and what is varied", ablation_name)
    arrows = "an arrow at the edge: the mean lies beyond it"
    yield from ("", "![ablations](images/ablations.png)", "", f"Squares and bars: {BARS}; {arrows}.", "")


def full_section(study: Study) -> Iterable[str]:
    """The same without reductions, where it was run."""
    if "full" not in study.compared:
        return
    yield from ("## At full size", "", *commands("full"))
    yield "Nothing reduced: all images, batches of 128, 100 rounds."
    yield ""
    yield from _pair_rows(study.compared["full"].ordered, "algorithm", lambda pair: ALGORITHMS[pair.algorithm])
    yield ""


def _strong(entry: Any) -> bool:
    """Whether this is a run of the controls' data sets at their alpha."""
    config = entry["config"]
    return config["data.name"] in EXAMINED and config["partition.alpha"] == 0.01


def steps_section() -> Iterable[str]:
    """Maps, positions, the theory."""
    yield from ("## Which steps are kept, and the theory", "", *commands("steps"))
    yield (
        "Maps of the client with the most steps (filled: kept); the mean position of kept steps over rounds, with the"
        " range of 95 % of random choices; and the quantities of [the theory](theory.md) on MNIST and"
        " CIFAR-10 (running means over 3 or 5 rounds; those of the other two are in data/steps/findings.json)."
        " Positions are counted in two ways, because under strong heterogeneity some clients take two steps a round and"
        " others a hundred: the verdict takes each kept step once, as the paper's pictures show them."
    )
    yield from ("", "![maps of kept steps](images/maps.png)", "")
    yield from ("![positions of kept steps](images/positions.png)", "")
    yield from ("![the theory's quantities](images/theory.png)", "")


def _report_cell(entry: Any) -> str:
    return "yes" if is_reported(entry) else "no, usual" if is_usual(entry) else "no"


def collapse_section(study: Study) -> Iterable[str]:
    """Every run of the collapse."""
    yield from ("## The collapse of FedNova with ECGR", "", *commands("collapse"))
    yield (
        "The paper's text reports it on CIFAR-10 at lr 0.0001, alpha 0.1 and beta 0, and calls CIFAR-100 largely"
        " consistent, which gives the fourth setting by inference; its usual setting is shown as well. One seed each:"
        " of the paper's five the one whose clients are most unequal. Below the factor -1 the buffers grow"
        " from round to round with changing sign ([why](theory.md))."
    )
    yield ""
    yield _row(
        *("data", "lr", "alpha", "beta", "reported", "buffers"),
        *("last five rounds, %", "rounds with a negative variance", "smallest factor"),
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for e in sort_entries(study.collapse["buffers"]):
        config, found = e["config"], e["summary"]
        yield (
            f"| {DATASETS[config['data.name']]} | {config['optimizer.lr']:g} | {config['partition.alpha']:g} |"
            f" {config['regulator.beta']:g} | {_report_cell(e)} | {config['run.buffers']} |"
            f" {100 * found['final_accuracy']:.2f} | {found['rounds_negative']} of {found['rounds']} |"
            f" {found['smallest_factor']:.2f} |"
        )
    yield from ("", "![buffers over rounds](images/buffers.png)", "")


def _missing_controls(study: Study, data: str) -> list[str]:
    """The controls that have fewer than two seeds."""
    controls = study.compared.get("controls")
    found = [] if controls is None else [p.regulator for p in controls.pairs(data) if len(p.seeds) > 1]
    return [f"`{name}`" for name in REGULATORS if name not in found]


def open_questions(study: Study) -> Iterable[str]:
    """What these runs cannot say."""
    pairs = study.compared["main"].ordered
    few = sum(pair.exploratory for pair in pairs)
    yield from ("## What these runs cannot decide", "")
    yield f"- {few} of {len(pairs)} pairs have fewer than 10 seeds: they are exploratory."
    for data in ("cifar10", "cifar100"):
        plain = [
            100 * p.primary.baseline_mean for p in pairs if dataset_of(p.setting) == data if p.primary.baseline_mean
        ]
        yield (
            f"- The reduced {DATASETS[data]} ends at {min(plain):.0f} to {max(plain):.0f} % (plain training):"
            " differences there need not carry over."
        )
    yield "- A reduced set is dealt out anew, so clients are as unequal as in the paper only on average over seeds."
    full = study.compared.get("full")
    for data in ("mnist", "fashion_mnist"):
        pair = full.pair(data, "fedavg") if full else None
        seeds = len(pair.seeds) if pair else 0
        if seeds < 5:
            yield f"- At full size {DATASETS[data]} was run with {seeds} of the paper's 5 seeds."
    if "lc25000" not in study.compared:
        yield "- LC25000 was not run."
    elif few_seeds := untried(study):
        yield f"- LC25000 has fewer than the paper's five seeds, with and without ECGR, for {', '.join(few_seeds)}."
    if study.ceiling is None:
        yield "- The ceiling of regulation was not measured."
    yield "- The collapse was looked at with one seed."
    for data in EXAMINED:
        if missing := _missing_controls(study, data):
            yield f"- Controls not run, or with one seed only, on {DATASETS[data]}: {', '.join(missing)}."
    ablations = study.compared.get("ablations")
    for data in EXAMINED:
        if ablations is None:
            yield f"- The ablations on {DATASETS[data]} were not run."
        elif absent := missing_ablations(ablations, data):
            yield f"- Ablations not run, or with one seed only, on {DATASETS[data]}: {'; '.join(absent)}."
    yield "- Which steps are kept and the theory's quantities come from one seed for each data set and alpha."
    yield ""
