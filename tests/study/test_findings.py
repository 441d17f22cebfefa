"""What runs showed beyond their accuracy: counted by hand, consistent in itself, and enough to draw its figures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from study.buffers import summarise as summarise_buffers
from study.figure_buffers import columns_of
from study.figure_findings import finding_figures
from study.findings import findings, read_findings, to_text
from study.labels import labels, titles
from study.positions import client_curve
from study.theory import summarise as theory_of

from ecgr.analysis.collect import read_runs
from ecgr.errors import DataError
from ecgr.report.figures.write import STYLE, write_drawings
from ecgr.runs.record import RunRecord, to_json
from ecgr.simulation.kept import Kept, pack_kept
from support.runs import write_comparison_runs, write_run

Config = Mapping[str, Mapping[str, Any]]


def client(assumption: float, conclusion: float, ratio: float = 0.25, **more: Any) -> dict[str, Any]:
    """A client's row in which |a|^2 / |b|^2 is ``ratio``."""
    own = {"norm_a": ratio**0.5, "norm_b": 1.0, "cos_v_c": 0.9, "cos_c_mu": 0.5}
    own |= {"assumption_mu": assumption, "conclusion_mu": conclusion}
    return {"client": 0, "steps": 4, **more, "diagnostics": own | more.get("diagnostics", {})}


def alone(**more: Any) -> dict[str, Any]:
    """The row of a client with one step: v is c, nothing is left for b."""
    own = {"norm_b": 0.0, "cos_v_c": 1.0}
    return client(0.0, 0.0, **{"steps": 1, **more, "diagnostics": own | more.get("diagnostics", {})})


def row(number: int, clients: Sequence[Mapping[str, Any]], **own: Any) -> dict[str, Any]:
    numbers = {"norm_ratio": 1.0, "cos_before_mu": 0.5, "cos_after_mu": 0.5, **own}
    return {"round": number, "accuracy": 0.5, "clients": clients, "diagnostics": numbers}


def batch_norm_row(number: int, accuracy: float, variance: float | None, factor: float) -> dict[str, Any]:
    buffers = {"smallest_variance": variance, "factor": factor}
    return {"round": number, "accuracy": accuracy, "buffers": buffers, "clients": []}


def record(
    directory: Path, rows: Sequence[Mapping[str, Any]], *, config: Config | None = None, **more: Any
) -> RunRecord:
    """A run with these rows."""
    run = write_run(directory, rounds=0, planned=max(1, len(rows)), config=config, **more)
    (directory / "rounds.jsonl").write_bytes(b"".join(to_json(each) + b"\n" for each in rows))
    return run


BY_HAND = (
    row(1, [client(1, 1, 0.25), client(1, 0, 0.5), alone()], norm_ratio=0.9, cos_after_mu=0.6),
    row(2, [client(0, 1, 0.04), client(0, 0, 0.16), alone()], norm_ratio=1.0, cos_after_mu=0.4),
    row(3, [client(1, 1, 0.1), client(0, 0, 0.36), client(0, 0, 0.49)], norm_ratio=1.1, cos_after_mu=0.7),
    row(4, [alone()], norm_ratio=1.0),
)
"""Seven updates that regulation turned: assumption in 3, conclusion in 3, both in 2; three of one step alone."""


def test_shares_as_counted_by_hand() -> None:
    found = theory_of(BY_HAND, beta=0.2)
    assert found is not None
    assert (found["updates"], found["unchanged"]) == (7, 3)
    assert found["counts"] == {"both": 2, "assumption_only": 1, "conclusion_only": 1, "neither": 3}
    assert found["shares"] == pytest.approx(
        {
            "assumption": 3 / 7,
            "conclusion": 3 / 7,
            "conclusion_given_assumption": 2 / 3,
            "conclusion_given_not_assumption": 1 / 4,
            "assumption_given_conclusion": 2 / 3,
            "beta_covers": 3 / 7,  # ratios 0.04, 0.16, 0.1
            "theorem_applies": 1 / 7,  # of these the last alone has the assumption
            "conclusion_given_theorem": 1.0,
        },
        rel=1e-4,
    )
    assert found["squared_ratio"]["q50"] == 0.25
    assert found["norm_ratio"] == pytest.approx({"q05": 0.915, "q25": 0.975, "q50": 1.0, "q75": 1.025, "q95": 1.085})
    cosines = {"before": 0.5, "after": 1.7 / 3, "improved": 2 / 3}  # the fourth round turned nothing
    assert found["cosines"] == pytest.approx(cosines, rel=1e-4)


def test_series_as_counted_by_hand() -> None:
    found = theory_of(BY_HAND, beta=0.2)
    assert found is not None
    assert found["series"] == {
        "rounds": [1, 2, 3, 4],
        "assumption": [1.0, 0.0, 0.33333, None],
        "conclusion": [0.5, 0.5, 0.33333, None],
        "squared_ratio": [0.375, 0.1, 0.36, None],
        "norm_ratio": [0.9, 1.0, 1.1, 1.0],
        "cos_before": [0.5, 0.5, 0.5, 0.5],
        "cos_after": [0.6, 0.4, 0.7, 0.5],
    }


@pytest.mark.parametrize(
    "unchanged",
    [
        alone(),
        alone(diagnostics={"norm_b": 1e-9, "cos_v_c": 0.99}),  # the rounding of a store, of one step
        client(1, 0, diagnostics={"cos_v_c": 1 - 1e-15}),  # beta = 1
        client(1, 0, diagnostics={"norm_b": 0.0}),
    ],
)
def test_an_update_that_regulation_left_alone_does_not_count(unchanged: dict[str, Any]) -> None:
    found = theory_of([row(1, [unchanged, client(1, 1)])], beta=0.2)
    assert found is not None
    assert (found["updates"], found["unchanged"]) == (1, 1)
    assert found["shares"]["conclusion"] == 1.0
    assert theory_of([row(1, [unchanged])], beta=0.2) is None


def test_a_client_s_own_beta_is_the_one_it_used() -> None:
    found = theory_of([row(1, [client(1, 1, 0.5, beta=0.5), client(1, 1, 0.5)])], beta=0.2)
    assert found is not None
    assert found["shares"]["beta_covers"] == 0.5
    none = theory_of([row(1, [client(1, 1)])], beta=None)
    assert none is not None
    assert none["shares"]["beta_covers"] is None
    assert none["shares"]["theorem_applies"] is None


def test_missing_numbers_stay_missing() -> None:
    rows = [row(1, [client(1, 1)], norm_ratio=None, cos_after_mu=None), row(2, [client(1, 1)])]
    found = theory_of(rows, beta=0.2)
    assert found is not None
    assert found["series"]["norm_ratio"] == [None, 1.0]
    assert found["cosines"] == {"before": 0.5, "after": 0.5, "improved": 0.0}
    assert theory_of([{"round": 1, "clients": [{"client": 0, "steps": 3}]}], beta=0.2) is None


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.1, 0.3])), min_size=1, max_size=30))
def test_shares_fit_each_other(pairs: list[tuple[bool, bool, float]]) -> None:
    found = theory_of([row(1, [client(float(a), float(c), ratio) for a, c, ratio in pairs])], beta=0.2)
    assert found is not None
    shares, counts = found["shares"], found["counts"]
    assert sum(counts.values()) == found["updates"] == len(pairs)
    held, missed = shares["conclusion_given_assumption"] or 0, shares["conclusion_given_not_assumption"] or 0
    total = held * shares["assumption"] + missed * (1 - shares["assumption"])
    assert shares["conclusion"] == pytest.approx(total, abs=1e-4)
    both = (shares["assumption_given_conclusion"] or 0) * shares["conclusion"]
    assert both == pytest.approx(held * shares["assumption"], abs=1e-4)
    assert both == pytest.approx(counts["both"] / len(pairs), abs=1e-4)
    assert shares["theorem_applies"] <= min(shares["beta_covers"], shares["assumption"])
    assert found["series"]["assumption"] == [shares["assumption"]]
    quantiles = list(found["squared_ratio"].values())
    assert quantiles == sorted(quantiles)


def test_buffers_as_counted_by_hand() -> None:
    rows = [
        batch_norm_row(n, accuracy, variance, factor)
        for n, (accuracy, variance, factor) in enumerate(
            [(0.9, 0.5, 0.1), (0.1, -0.2, -0.5), (0.2, 0.3, -1.0), (0.3, -4.0, -1.5), (0.4, None, -2), (0.5, 0.1, 0)], 1
        )
    ]
    found = summarise_buffers(rows)
    assert found["rounds"] == [1, 2, 3, 4, 5, 6]
    assert found["smallest_variance"] == [0.5, -0.2, 0.3, -4.0, None, 0.1]
    assert found["summary"] == {
        "rounds": 6,
        "rounds_negative": 2,
        "rounds_not_finite": 1,
        "rounds_diverging": 2,
        "smallest_variance": -4.0,
        "smallest_factor": -2,
        "final_accuracy": 0.3,  # of the last five
    }


def test_positions_by_hand(tmp_path: Path) -> None:
    run = record(tmp_path / "a", [row(1, []), row(2, [])])
    entries = [Kept(1, 0, 4, (3, 2)), Kept(2, 0, 100, tuple(range(50, 100)))]
    arrays: dict[str, Any] = dict(pack_kept(entries))
    np.savez_compressed(tmp_path / "a" / "steps.npz", **arrays)
    (found,) = findings([run])["positions"]
    assert found["rounds"] == [1, 2]
    assert found["mean"] == [0.75, 0.75]
    assert found["chance_high"][1] < 0.75 <= found["chance_high"][0] + 0.1
    assert found["summary"]["mean"] == 0.75
    assert found["summary"]["below"] == 0.0


def test_kinds_without_data_are_left_out(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", regulator="none", rounds=2)
    assert findings([plain]) == {}
    assert list(finding_figures({})) == []
    assert set(findings(write_comparison_runs(tmp_path / "runs", seeds=1))) == {"positions"}


def test_labels_hold_what_a_document_needs(tmp_path: Path) -> None:
    runs = [
        record(
            tmp_path / str(alpha), BY_HAND, seed=3, config={"partition": {"alpha": alpha, "clients": 5 + int(alpha)}}
        )
        for alpha in (0.01, 1.0)
    ]
    found = findings(runs)["theory"]
    first = found[0]
    assert {key: first[key] for key in ("run", "seed", "algorithm", "regulator", "finished")} == {
        "run": "0.01",
        "seed": 3,
        "algorithm": "fedavg",
        "regulator": "ecgr",
        "finished": True,
    }
    assert first["config"] == {
        "data.name": "digits",
        "algorithm.name": "fedavg",
        "regulator.name": "ecgr",
        "partition.alpha": 0.01,
        "partition.clients": 5,
        "optimizer.lr": 0.01,
        "regulator.beta": 0.2,
        "federation.rounds": 4,
    }
    assert titles(found) == ["digits, alpha 0.01", "digits, alpha 1.0"]


def test_titles_name_no_more_than_tells_runs_apart(tmp_path: Path) -> None:
    records = write_comparison_runs(tmp_path, seeds=2)
    assert titles(labels(read_runs(records))) == ["digits, none", "digits, none", "digits, ecgr", "digits, ecgr"]


def all_kinds(directory: Path) -> list[RunRecord]:
    """Runs with every kind of finding, some numbers of them missing."""
    made = [write_run(directory / "kept", rounds=3), record(directory / "theory", BY_HAND, data="mnist")]
    for treatment, factor in (("as_weights", -1.25), ("average", 0.5)):
        rows = [batch_norm_row(n, 0.1, None if n == 2 else factor**n, factor) for n in range(1, 4)]
        made.append(record(directory / treatment, rows, config={"run": {"buffers": treatment}}))
    return made


@pytest.mark.slow
def test_figures_drawn_from_the_file_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a fraction of the time, the same question
    monkeypatch.setattr("ecgr.report.figures.write.WIDTHS", {"one-column": 3.35})
    monkeypatch.setitem(STYLE, "savefig.dpi", 60)
    found = findings(all_kinds(tmp_path / "runs"))
    write_drawings(tmp_path / "first", finding_figures(found))
    again = write_drawings(tmp_path / "again", finding_figures(json.loads(to_text(found))))
    assert {path.name.partition("-")[0] for path in again} == {"positions", "theory", "buffers"}
    for path in again:
        assert path.read_bytes() == (tmp_path / "first" / path.name).read_bytes()


def test_the_file_reads_back_as_what_was_found(tmp_path: Path) -> None:
    found = findings(all_kinds(tmp_path / "runs"))
    path = tmp_path / "findings.json"
    path.write_text(to_text(found))
    assert read_findings(path) == found
    assert to_text(read_findings(path)) == path.read_text()
    assert len(path.read_text().splitlines()) == 2 + sum(2 + len(entries) for entries in found.values())


@pytest.mark.parametrize("content", ["", "[]", '{"other": []}'])
def test_another_file_is_one_clear_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "findings.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"findings\.json"):
        read_findings(path)


def test_columns_are_settings_in_the_order_of_their_factor(tmp_path: Path) -> None:
    runs = []
    for rate, lowest in ((0.1, -0.5), (0.01, -1.5), (0.001, 0.3)):
        for treatment, factor in (("as_weights", lowest), ("average", 0.5)):
            config: Config = {"optimizer": {"lr": rate}, "run": {"buffers": treatment}}
            runs.append(record(tmp_path / f"{rate}-{treatment}", [batch_norm_row(1, 0.1, 1.0, factor)], config=config))
    columns = columns_of(findings(runs)["buffers"])
    assert [column.title for column in columns] == ["digits, lr 0.01", "digits, lr 0.1", "digits, lr 0.001"]
    assert all(column.treatments == {"as_weights", "average"} for column in columns)
    assert not columns_of(findings(runs[1::2])["buffers"])  # averaged ones alone


@pytest.mark.slow
@pytest.mark.parametrize("width", [3.35, 6.9])
def test_many_runs_still_fit(tmp_path: Path, width: float) -> None:
    runs = [
        record(tmp_path / f"{data}-{alpha}", BY_HAND, data=data, config={"partition": {"alpha": alpha}})
        for data in ("mnist", "cifar10", "cifar100", "digits")
        for alpha in (0.01, 1.0)
    ]
    ((name, height, draw),) = finding_figures(findings(runs))
    figure = Figure(figsize=(width, height(width)), layout="constrained")
    draw(figure)
    assert name == "theory"
    looks = {(line.get_color(), line.get_linestyle()) for line in figure.axes[0].lines[1:]}
    assert len(looks) == len(runs)
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:3] == ["cifar10, alpha 0.01", "cifar10, alpha 1.0", "cifar100, alpha 0.01"]


def test_runs_of_different_lengths_are_drawn_to_one(tmp_path: Path) -> None:
    runs = [record(tmp_path / data, BY_HAND[:count], data=data) for data, count in (("mnist", 2), ("digits", 4))]
    ((_, _, draw),) = finding_figures(findings(runs))
    figure = Figure(layout="constrained")
    draw(figure)
    longer, shorter = figure.axes[0].lines[1:]
    assert np.asarray(longer.get_xdata()).tolist() == [0.25, 0.5, 0.75, 1.0]
    assert np.asarray(shorter.get_xdata()).tolist() == [0.5, 1.0]
    assert figure.axes[-1].get_xlabel() == "part of the run"


def test_a_random_choice_lies_in_its_band() -> None:
    rng = np.random.default_rng(0)
    entries = [
        Kept(number, client, 21, tuple(rng.choice(21, size=10, replace=False).tolist()))
        for number in range(1, 2001)
        for client in range(3)
    ]
    curve = client_curve(entries)
    inside = [
        low <= mean <= high
        for mean, low, high in zip(curve["mean"], curve["chance_low"], curve["chance_high"], strict=True)
    ]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)
    assert np.mean(curve["mean"]) == pytest.approx(0.5, abs=0.005)
