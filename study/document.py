"""docs/results/paper.md and the summary in README, made from the committed data; `rebuild` also draws the figures."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import copysign
from pathlib import Path

from ecgr.files import write_atomically
from ecgr.report.comparison import Pair
from ecgr.report.figure_findings import finding_figures
from study import figures
from study.ablations import ABLATED, ablation_name, ablation_pairs
from study.claims import claims, collapsed, reported
from study.data import ALGORITHMS, DATASETS, REGULATORS, RESULTS, ROOT, Study, dataset_of, load
from study.verdicts import Claim, gain, points, verdict_on_gain

PAGE = RESULTS / "paper.md"
IMAGES = RESULTS / "images"
README = ROOT / "README.md"
WIDTH = 7.2
"""Inches, at 160 dots each: as wide as a page on a screen shows them."""
START, END = "<!-- results: written by `make results` -->", "<!-- end of results -->"

COMMANDS = {
    "main": ("ecgr sweep study/main --workers 2", "ecgr compare runs/study-main"),
    "controls": (
        "ecgr sweep study/controls --workers 2",
        "ecgr compare runs/study-controls --treatment algorithm.server_lr --treatment run.step_control",
    ),
    "ablations": ("ecgr sweep study/ablations --workers 2", "ecgr compare runs/study-ablations"),
    "steps": ("ecgr sweep study/steps --workers 2", "ecgr figures runs/study-steps"),
    "collapse": ("ecgr sweep study/collapse --workers 2", "ecgr figures runs/study-collapse"),
    "full": ("ecgr sweep study/full --workers 2", "ecgr compare runs/study-full"),
}


def rebuild(results: Path = RESULTS, readme: Path = README) -> None:
    """Write the page, its figures, and the summary in README."""
    study = load(results / "data")
    draw(study, results / "images")
    write_atomically(results / "paper.md", page(study).encode())
    write_atomically(readme, with_summary(readme.read_text(encoding="utf-8"), study).encode())


def draw(study: Study, folder: Path) -> None:
    """Every figure of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    main = study.compared["main"]
    figures.save(folder / "accuracy.png", (WIDTH, 6.4), figures.accuracy(main))
    save_differences(folder / "differences.png", main.ordered, figures.main_label, claimed=True)
    if "controls" in study.compared:
        pairs = [pair for pair in study.compared["controls"].ordered if len(pair.seeds) > 1]
        save_differences(folder / "controls.png", pairs, figures.control_label, claimed=False)
    if ablations := study.compared.get("ablations"):
        pairs = [pair for data in ABLATED for pair in ablation_pairs(ablations, data) if len(pair.seeds) > 1]
        save_differences(folder / "ablations.png", pairs, ablation_name, claimed=False)
    figures.save(folder / "maps.png", (WIDTH, 3.6), figures.maps(study.maps))
    theory = [e for e in study.steps["theory"] if e["config"]["data.name"] in {"mnist", "cifar10"}]
    figures.save(folder / "positions.png", (WIDTH, 3.6), figures.positions(study.maps))
    found = {"theory": theory, "statistics": study.collapse["statistics"]}
    for name, height, drawing in finding_figures(found):
        figures.save(folder / f"{name}.png", (WIDTH, height(WIDTH)), drawing)


def save_differences(path: Path, pairs: Sequence[Pair], label: Callable[[Pair], str], claimed: bool) -> None:
    """As high as there are pairs."""
    figures.save(path, (6.4, 0.9 + 0.27 * len(pairs)), figures.differences(pairs, label, claimed))


def page(study: Study) -> str:
    """The whole page as Markdown."""
    found = claims(study)
    return "\n".join(
        [
            "# The paper's claims, measured",
            "",
            "Made by `make results` from the data in [data/](data); do not edit by hand.",
            "",
            *_how(study),
            "## Claim by claim",
            "",
            *_table(found),
            "",
            *_main_section(study),
            *_full_section(study),
            *_control_section(study),
            *_ablation_section(study),
            *_steps_section(),
            *_collapse_section(study),
            *_undecided(study),
        ]
    )


def with_summary(text: str, study: Study) -> str:
    """README with the lines between its two marks replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + "\n".join([START, *summary(study), END]) + after


def summary(study: Study) -> list[str]:
    """A few lines for somebody who reads no further."""
    verdicts = Counter(claim.verdict for claim in claims(study))
    pairs = study.compared["main"].ordered
    judged = Counter(verdict_on_gain(pair) for pair in pairs)
    sides = [copysign(1, pair.primary.mean or 0) if pair.primary.excludes_zero else 0 for pair in pairs]
    headline = [pair for pair in pairs if not pair.exploratory]
    lines = [
        "In a reduced protocol that keeps every client's number of steps, the paper's gain of 1 to 2 points was shown"
        f" in {judged['shown']} of {len(pairs)} pairs of data set and algorithm, contradicted in"
        f" {judged['contradicted']}, and left open in {judged['not shown']}. The interval of the difference lies"
        f" wholly above zero in {sides.count(1)} of them and wholly below in {sides.count(-1)}.",
    ]
    for pair in headline:
        data = DATASETS[dataset_of(pair.setting)]
        lines.append(f"{ALGORITHMS[pair.algorithm]} on {data}: {gain(pair)} points, {pair.verdict}.")
    entries = study.collapse["statistics"]
    where = [e for e in entries if reported(e) and e["config"]["run.buffers"] == "as_weights"]
    averaged = [e for e in entries if e["config"]["run.buffers"] == "average"]
    lines.append(
        "The collapse of FedNova with ECGR is an artefact of evaluation: with BatchNorm's statistics treated as weights"
        f" it is there in {sum(map(collapsed, where))} of the {len(where)} settings where the paper reports it; with"
        f" the same weights and averaged statistics in {sum(map(collapsed, averaged))} of {len(averaged)}."
    )
    count = sum(verdicts.values())
    return [*lines, f"All {count} rows, claim by claim: [docs/results/paper.md](docs/results/paper.md)."]


def _how(study: Study) -> Iterable[str]:
    made = study.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    yield (
        f"Commit {made['commit']}, {made['machine']['cores']} cores, {versions}. Data: {made['data']}."
        " The reductions stand in `experiments/study/bases/`: every client takes as many steps as in the paper, on"
        " fewer images with smaller batches; the CIFARs also with smaller images, a narrower network and fewer rounds."
        " So these are not the paper's own numbers: they decide about trends, under this protocol."
    )
    yield ""
    yield (
        "Pairs by seed; what counts is the mean accuracy of the last five rounds; intervals are paired t at 95 %; p"
        " from exact sign flips, after Holm over all pairs of a comparison ([statistics](../reference/statistics.md))."
        " With 5 seeds p cannot fall below 0.0625, with 3 not below 0.25: such pairs can be left open or contradicted,"
        ' never shown. Verdicts follow the rule in `study/verdicts.py`: *shown* is a comparison\'s verdict "better";'
        ' *contradicted* is "worse", or an interval that ends below the +1 point claimed; else *not shown*.'
    )
    yield ""


def _table(found: Sequence[Claim]) -> Iterable[str]:
    yield "| the paper says | measured (points: difference, 95 % interval, seeds) | verdict | command |"
    yield "|---|---|---|---|"
    for claim in found:
        command = f"`{COMMANDS[claim.sweep][0]}`"
        yield f"| {_cell(claim.says)} | {_cell(claim.measured)} | {claim.verdict} | {command} |"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _commands(name: str) -> Iterable[str]:
    yield "```"
    yield from COMMANDS[name]
    yield "```"
    yield ""


def _pair_rows(pairs: Iterable[Pair], name: str, who: Callable[[Pair], str]) -> Iterable[str]:
    yield _row("data", name, "plain, %", "difference, points", "95 % interval", "seeds", "p (Holm)", "`ecgr compare`")
    yield "|---|---|---|---|---|---|---|---|"
    for pair in pairs:
        found = pair.primary
        if found.mean is None or found.interval is None or found.baseline_mean is None:
            continue
        low, high = map(points, found.interval)
        yield (
            f"| {DATASETS[dataset_of(pair.setting)]} | {who(pair)} | {100 * found.baseline_mean:.2f} |"
            f" {points(found.mean)} | {low} to {high} | {len(pair.seeds)} | {found.p_holm:.3g} | {pair.verdict} |"
        )


def _main_section(study: Study) -> Iterable[str]:
    yield from ("## The main comparison", "", *_commands("main"))
    yield from _pair_rows(study.compared["main"].ordered, "algorithm", lambda pair: ALGORITHMS[pair.algorithm])
    yield from ("", "![differences](images/differences.png)", "", "![accuracy over rounds](images/accuracy.png)", "")


def _control_section(study: Study) -> Iterable[str]:
    if "controls" not in study.compared:
        return
    yield from ("## Controls", "", *_commands("controls"))
    yield from _pair_rows(study.compared["controls"].ordered, "instead of plain", lambda pair: f"`{pair.regulator}`")
    yield from ("", "![controls](images/controls.png)", "")


def _ablation_section(study: Study) -> Iterable[str]:
    ablations = study.compared.get("ablations")
    if ablations is None:
        return
    yield from ("## Ablations", "", *_commands("ablations"))
    yield "One thing at a time differs from lr 0.001, alpha 0.01 and beta 0.2. Each row is ECGR against plain training."
    yield ""
    pairs = [pair for data in ABLATED for pair in ablation_pairs(ablations, data)]
    yield from _pair_rows(pairs, "algorithm and what is varied", ablation_name)
    yield from ("", "![ablations](images/ablations.png)", "")


def _full_section(study: Study) -> Iterable[str]:
    if "full" not in study.compared:
        return
    yield from ("## At full size", "", *_commands("full"))
    yield "Nothing reduced: all images, batches of 128, 100 rounds."
    yield ""
    yield from _pair_rows(study.compared["full"].ordered, "algorithm", lambda pair: ALGORITHMS[pair.algorithm])
    yield ""


def _steps_section() -> Iterable[str]:
    yield from ("## Which steps are kept, and the theory", "", *_commands("steps"))
    yield (
        "Maps of the client with the most steps (filled: kept); the mean position of kept steps over rounds, with the"
        " range of 95 % of random choices; and the quantities of [the theory](../guide/theory.md) on MNIST and"
        " CIFAR-10. Positions are counted in two ways, because under strong heterogeneity some clients take two steps a"
        " round and others a hundred: the verdict takes each kept step once, as the paper's pictures show them."
    )
    yield from ("", "![maps of kept steps](images/maps.png)", "")
    yield from ("![positions of kept steps](images/positions.png)", "")
    yield from ("![the theory's quantities](images/theory.png)", "")


def _collapse_section(study: Study) -> Iterable[str]:
    yield from ("## The collapse of FedNova with ECGR", "", *_commands("collapse"))
    yield (
        "The paper's text reports it on CIFAR-10 at lr 0.0001, alpha 0.1 and beta 0, and calls CIFAR-100 largely"
        " consistent, which gives the fourth setting. Below the factor -1 the running statistics grow from round to"
        " round with changing sign ([why](../guide/theory.md))."
    )
    yield ""
    yield _row(
        *("data", "lr", "alpha", "beta", "reported", "statistics"),
        *("last five rounds, %", "rounds with a negative variance", "smallest factor"),
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for e in study.collapse["statistics"]:
        config, found = e["config"], e["summary"]
        yield (
            f"| {DATASETS[config['data.name']]} | {config['optimizer.lr']:g} | {config['partition.alpha']:g} |"
            f" {config['regulator.beta']:g} | {'yes' if reported(e) else 'no'} | {config['run.buffers']} |"
            f" {100 * found['final_accuracy']:.2f} | {found['rounds_negative']} of {found['rounds']} |"
            f" {found['smallest_factor']:.2f} |"
        )
    yield from ("", "![statistics over rounds](images/statistics.png)", "")


def _missing_controls(study: Study, data: str) -> list[str]:
    """The controls that have fewer than two seeds."""
    controls = study.compared.get("controls")
    found = [] if controls is None else [p.regulator for p in controls.pairs(data) if len(p.seeds) > 1]
    return [f"`{name}`" for name in REGULATORS if name not in found]


def _undecided(study: Study) -> Iterable[str]:
    """What these runs cannot say."""
    pairs = study.compared["main"].ordered
    few = sum(pair.exploratory for pair in pairs)
    yield from ("## What these runs cannot decide", "")
    yield f"- {few} of {len(pairs)} pairs have fewer than 10 seeds: they are exploratory."
    yield "- The reduced CIFARs end far below the paper's accuracies; differences there need not carry over."
    if "full" not in study.compared:
        yield "- Runs at full size: `ecgr sweep study/full` is ready and was not run."
    yield "- LC25000 was not run."
    for data in ("mnist", "cifar10"):
        if missing := _missing_controls(study, data):
            yield f"- Controls not run, or with one seed only, on {DATASETS[data]}: {', '.join(missing)}."
    if "ablations" not in study.compared:
        yield "- The ablations (`ecgr sweep study/ablations`) were not run."
    yield "- Which steps are kept and the theory's quantities come from one seed for each data set and alpha."
    yield ""
