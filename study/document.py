"""docs/results/paper.md, methods.md and the summary in README, made from the committed data, and their figures."""

from collections import Counter
from collections.abc import Callable, Sequence
from math import copysign
from pathlib import Path

from ecgr.analysis.comparison import Pair
from ecgr.compare import write_comparison
from ecgr.files import write_atomically
from ecgr.report.sentences import best_first
from study import ceiling_section, figure_lemma, figure_methods, figures, methods_page, sections
from study.ablations import ablation_name, ablation_pairs
from study.claims import claims
from study.collapse import by_report, count_collapses
from study.data import ALGORITHMS, DATASETS, EXAMINED, LONGER, MATCHED, RESULTS, ROOT, Study, dataset_of, load
from study.figure_findings import finding_figures
from study.steps import theory_rows
from study.tissue import tissue_line, tissue_section
from study.verdicts import CLAIMED_GAIN, gain, gains_a_point

PAGE = RESULTS / "paper.md"
README = ROOT / "README.md"
WIDTH = 7.2
"""Inches, at 160 dots each: as wide as a page on a screen shows them."""
CONTROLS = {
    MATCHED: "ECGR with the server's step as long as a plain one",
    LONGER: "plain steps made 5 % longer",
    "last_half": "ECGR's damping with simply the last half kept",
    "random_half": "with a random half",
}
"""Controls for somebody who reads no further."""
START, END = "<!-- results: written by `make results` -->", "<!-- end of results -->"


def rebuild(results: Path = RESULTS, readme: Path = README) -> None:
    """Write the comparisons that the summaries give, the page, its figures, and the summary in README."""
    study = load(results / "data")
    for name, compared in study.compared.items():
        write_comparison(compared.comparison, compared.runs, results / "data" / name)
    for board in study.boards:
        write_comparison(board.comparison, board.runs, results / "data" / board.name)
    draw(study, results / "images")
    write_atomically(results / "paper.md", page(study).encode())
    write_atomically(results / "methods.md", methods_page.page(study.boards).encode())
    write_atomically(readme, replace_summary(readme.read_text(encoding="utf-8"), study).encode())


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
        pairs = [pair for data in EXAMINED for pair in ablation_pairs(ablations, data) if len(pair.seeds) > 1]
        save_differences(folder / "ablations.png", pairs, ablation_name, claimed=False)
    figures.save(folder / "lemma.png", figure_lemma.SIZE, figure_lemma.draw)
    figures.save(folder / "maps.png", (WIDTH, 3.6), figures.maps(study.maps))
    if leaderboard := [board for board in study.boards if board.on_leaderboard]:
        size = (WIDTH, figure_methods.HEIGHT)
        figures.save(folder / "methods.png", size, figure_methods.method_map(leaderboard))
        figures.save(folder / "profile.png", size, figure_methods.profile(leaderboard))
    theory = [e for e in study.steps["theory"] if e["config"]["data.name"] in EXAMINED]
    figures.save(folder / "positions.png", (WIDTH, 3.6), figures.positions(study.maps))
    found = {"theory": theory, "buffers": study.collapse["buffers"]}
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
            "Made by `make results` from the data in `data/`; do not edit by hand.",
            "",
            *sections.how(study),
            "## Claim by claim",
            "",
            *sections.claim_table(found),
            "",
            *sections.beyond_table(theory_rows(study)),
            "",
            *sections.main_section(study),
            *sections.full_section(study),
            *tissue_section(study, sections.commands("lc25000")),
            *sections.control_section(study),
            *sections.ablation_section(study),
            *sections.steps_section(),
            *sections.collapse_section(study),
            *ceiling_section.section(study.ceiling, instead(study)),
            *sections.open_questions(study),
        ]
    )


def instead(study: Study) -> list[str]:
    """What was better than a tuned FedAvg, not by the length of its step alone, and nowhere worse: what to do."""
    found: dict[str, list[Pair]] = {}
    for board in study.boards:
        for pair in best_first(board.comparison.pairs):
            found.setdefault(pair.method, []).append(pair)
    told = []
    for method, pairs in found.items():
        better = [pair for pair in pairs if pair.cause in ("direction", "both") and _is_gain(pair)]
        if better and not any(_is_loss(pair) for pair in pairs):
            better.sort(key=lambda pair: abs(pair.primary.mean or 0.0))
            ends = dict.fromkeys(pair.metric.amount(pair.primary.mean or 0.0) for pair in (better[0], better[-1]))
            size = " to ".join(ends)
            told.append((len(better), f"`{method}` on {len(better)} of {len(pairs)} problems, by {size}"))
    if not told:
        return []
    named = "; ".join(line for _, line in sorted(told, key=lambda item: -item[0]))
    return [
        "Instead: tune FedAvg's learning rate, then coordinate the clients. Better than a tuned FedAvg, not by the"
        f" length of the step alone, and worse on no problem were {named} ([the leaderboard](methods.md))."
    ]


def _is_gain(pair: Pair) -> bool:
    return pair.verdict == "better" and not methods_page.is_small(pair)


def _is_loss(pair: Pair) -> bool:
    return pair.verdict == "diverged" or (pair.verdict == "worse" and not methods_page.is_small(pair))


def full_size(study: Study) -> list[str]:
    """What the paper's own protocol gave, nothing reduced and nothing tuned."""
    if "full" not in study.compared:
        return []
    told = "; ".join(
        f"{ALGORITHMS[pair.algorithm]} on {DATASETS[dataset_of(pair.setting)]} {gain(pair)}"
        for pair in study.compared["full"].ordered
        if pair.primary.mean is not None
    )
    return [f"At full size, as in the paper and with nothing tuned, points with ECGR over plain training: {told}."]


def replace_summary(text: str, study: Study) -> str:
    """README with the lines between its two marks replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + "\n".join([START, *summary(study), END]) + after


def summary(study: Study) -> list[str]:
    """A few lines for somebody who reads no further."""
    pairs = study.compared["main"].ordered
    judged = Counter(gains_a_point(pair.primary) for pair in pairs)
    sides = [copysign(1, pair.primary.mean or 0) if pair.primary.excludes_zero else 0 for pair in pairs]
    few = sum(pair.exploratory for pair in pairs)
    whole = sum(pair.verdict == "better" and (pair.primary.interval or (0.0,))[0] >= CLAIMED_GAIN for pair in pairs)
    lines = [
        f"The paper's gain, approximately 1 to 2 points, in a reduced protocol: that there is a gain was shown in"
        f" {judged['shown']} of {len(pairs)} pairs of data set and algorithm, that it is a point or more in {whole};"
        f" contradicted in {judged['contradicted']}, and left open in {judged['not shown']}; {few} of the {len(pairs)}"
        " have fewer than ten seeds, with which the test can contradict a gain or leave it open, never show it. The"
        f" interval of the difference lies wholly above zero in {sides.count(1)} of the {len(pairs)} and wholly below"
        f" in {sides.count(-1)}.",
    ]
    for pair in (pair for pair in pairs if not pair.exploratory):
        name = f"{ALGORITHMS[pair.algorithm]} on {DATASETS[dataset_of(pair.setting)]}"
        lines.append(f"{name}: {gain(pair)} points, p {pair.primary.p_holm:.2g} after Holm: {pair.verdict}.")
    lines += [*full_size(study), *tissue_line(study)]
    if controls := study.compared.get("controls"):
        found = {words: controls.pair("mnist", "fedavg", name) for name, words in CONTROLS.items()}
        text = "; ".join(f"{words} {gain(control)}" for words, control in found.items() if control is not None)
        lines.append(f"Controls on MNIST, points over plain FedAvg: {text}.")
    where, averaged = by_report(study, "as_weights")[0], [e for group in by_report(study, "average") for e in group]
    lines.append(
        "The collapse of FedNova with ECGR is an artefact of evaluation: with BatchNorm's buffers treated as weights"
        f" it is there in {count_collapses(where)} settings where the paper has it (one of them by inference); with the"
        f" same weights and averaged buffers in {count_collapses(averaged)}."
    )
    lines += [methods_page.headline(board) for board in study.boards]
    if study.ceiling is not None:
        lines.append(ceiling_section.in_short(study.ceiling))
    count = len(claims(study))
    link = (
        f"All {count} rows, claim by claim: [docs/results/paper.md](docs/results/paper.md); method by method:"
        " [docs/results/methods.md](docs/results/methods.md)."
    )
    return [*(f"- {line}" for line in lines), "", link]
